"""What is checked before anything is started."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from pdctl.deployment import preflight
from pdctl.deployment.model import Instance, Role
from pdctl.errors import PdctlError


def engine(url: str = "http://127.0.0.1:1", start: str = sys.executable, bootstrap_port: int | None = None) -> Instance:
    return Instance(
        name="prefill-0",
        role=Role.PREFILL,
        dialect="pdctl",
        url=url,
        start=(start, "-m", "engine"),
        bootstrap_port=bootstrap_port,
    )


@pytest.mark.parametrize(
    ("table", "names", "missing"),
    [
        ("ENGINE_MODULES", ("json", "no_such_torch", "no_such_zmq"), "no no_such_torch, no_such_zmq"),
        ("NIXL_MODULES", ("no_such_nixl_cu12", "no_such_nixl_cu13"), "no nixl"),
    ],
)
def test_missing_extra(monkeypatch: pytest.MonkeyPatch, table: str, names: tuple[str, ...], missing: str) -> None:
    """What is missing is named, and the command that brings it."""
    monkeypatch.setattr(preflight, "ENGINE_MODULES", ("json",))
    monkeypatch.setattr(preflight, "NIXL_MODULES", ("json",))
    monkeypatch.setattr(preflight, table, names)
    with pytest.raises(PdctlError, match=f"the engine is not installed in .*: {missing}$") as caught:
        preflight.check_engine_extra([engine()])
    assert caught.value.hint is not None and "pip install '.[engine]'" in caught.value.hint


def test_one_nixl_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either CUDA build will do."""
    monkeypatch.setattr(preflight, "ENGINE_MODULES", ("json",))
    monkeypatch.setattr(preflight, "NIXL_MODULES", ("no_such_nixl", "json"))
    preflight.check_engine_extra([engine()])


def test_foreign_command_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine with another interpreter brings its own modules."""
    monkeypatch.setattr(preflight, "ENGINE_MODULES", ("no_such_torch",))
    preflight.check_engine_extra([engine(start="/opt/vllm/bin/python")])


def test_every_taken_port_is_named_with_its_holder() -> None:
    """The serving port and the registry's, and by whom."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, bootstrap_port = one.getsockname()[1], other.getsockname()[1]
        with pytest.raises(PdctlError) as caught:
            preflight.check_ports([engine(f"http://127.0.0.1:{port}", bootstrap_port=bootstrap_port)])
    for taken in (port, bootstrap_port):
        assert f"port {taken} (prefill-0) is taken by pid {os.getpid()}: " in caught.value.message


def test_port_in_time_wait_is_free() -> None:
    """A server that has just stopped does not block its successor."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        client = socket.create_connection(address)
        connection, _ = listener.accept()
        connection.close()  # the side that closes first goes to TIME_WAIT
        client.close()
    preflight.check_ports([engine(f"http://127.0.0.1:{address[1]}")])


def test_port_of_a_client_that_has_just_closed_is_explained() -> None:
    """The kernel keeps it for a minute and names no process: that is no process of another user."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
        port = client.getsockname()[1]
        client.close()
        assert connection.recv(1) == b""
        connection.close()
    with pytest.raises(PdctlError, match=rf"port {port} \(prefill-0\) is taken by a closed connection"):
        preflight.check_ports([engine(f"http://127.0.0.1:{port}")])


def test_address_of_another_machine() -> None:
    """One cannot listen there; the message says where the address came from."""
    with pytest.raises(PdctlError, match=r"cannot listen on 192\.0\.2\.1:30000") as caught:
        preflight.check_ports([engine("http://192.0.2.1:30000")])
    assert caught.value.hint == "correct the url in pd.toml"
