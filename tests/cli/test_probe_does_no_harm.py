"""A probe that gets no answer: real pdctl processes against a real server that never answers."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.deployment.files import save
from pdctl.deployment.model import Deployment, Instance, Role
from tests.cli.pdctl_process import run, start
from tests.fakes.http_server import FakeServer, Reply, Request

CHAT = "/v1/chat/completions"


class Hanging:
    """A router that takes requests and is silent until it is told to let go."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.release = threading.Event()
        self.request: Request | None = None
        self.server = FakeServer({CHAT: self._hang, "/generate": self._hang})

    def _hang(self, request: Request) -> Reply | None:
        self.request = request
        self.arrived.set()
        self.release.wait(60)
        return Reply(b"data: [DONE]\n\n")

    def client_left(self, wait_s: float) -> bool:
        assert self.request is not None
        return self.request.client_left(wait_s)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """A hanging router; let go at the end, so that no process stays behind."""
    router = Hanging()
    with router.server:
        yield router
        router.release.set()


def deploy(folder: Path, router: Hanging, dialect: str, version: str) -> None:
    """Write a pd.toml with one pair behind the router; nobody listens at the engines' addresses."""
    common = {"dialect": dialect, "version": version, "transfer": "nixl"}
    instances = (
        Instance(name="p", role=Role.PREFILL, url="http://127.0.0.1:9", bootstrap_port=8998, **common),  # type: ignore[arg-type]
        Instance(name="d", role=Role.DECODE, url="http://127.0.0.2:9", **common),  # type: ignore[arg-type]
        Instance(name="router", role=Role.ROUTER, dialect="smg", url=router.server.url),
    )
    save(Deployment(name="here", model="m", instances=instances), folder / "pd.toml")


def ended(pid: int) -> bool:
    """Wait for a process that is not our child; False if it is still there after 10 s."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(descriptor) as handle:
        import select

        return bool(select.select([handle], [], [], 10)[0])


def test_timeout_keeps_the_connection_open_where_an_abort_kills(tmp_path: Path, hanging: Hanging) -> None:
    """After pdctl has reported and exited, SGLang 0.5.14 sees no client leave; the holder goes when it answers."""
    deploy(tmp_path, hanging, "sglang", "0.5.14")
    ran = run(tmp_path, "probe", "--timeout", "2", "-o", "json")
    [result] = json.loads(ran.stdout)["results"]
    assert ran.returncode == 1
    assert (result["error"], result["stage"]) == ("timeout", "sent")
    assert "30301" in ran.stderr
    [holder] = result["held_by"]
    assert not hanging.client_left(1.0)
    hanging.release.set()
    assert ended(holder)


def test_held_probe_lets_no_second_one_pass(tmp_path: Path, hanging: Hanging) -> None:
    """While the first connection is kept open a second probe of the pair is refused, and sends nothing."""
    deploy(tmp_path, hanging, "sglang", "0.5.14")
    run(tmp_path, "probe", "--timeout", "2")
    again = run(tmp_path, "probe", "--timeout", "2")
    assert again.returncode == 5
    assert "still under way" in again.stderr
    assert len(hanging.server.paths("POST")) == 1


def test_probe_is_possible_again_after_the_holder_has_gone(tmp_path: Path, hanging: Hanging) -> None:
    """The lock goes with the process that holds the connection."""
    deploy(tmp_path, hanging, "sglang", "0.5.14")
    first = run(tmp_path, "probe", "--timeout", "2", "-o", "json")
    hanging.release.set()
    assert ended(json.loads(first.stdout)["results"][0]["held_by"][0])
    assert run(tmp_path, "probe", "--timeout", "5").returncode == 1


def test_ctrl_c_keeps_the_connection_open_where_an_abort_kills(tmp_path: Path, hanging: Hanging) -> None:
    """Ctrl-C ends pdctl with 130, and the engine sees nothing of it."""
    deploy(tmp_path, hanging, "sglang", "0.5.14")
    process = start(tmp_path, "probe", "--timeout", "60")
    assert hanging.arrived.wait(20)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "keeps it open" in err
    assert not hanging.client_left(1.0)


def test_timeout_closes_the_connection_of_our_engine(tmp_path: Path, hanging: Hanging) -> None:
    """Our engine survives a client that leaves, so nothing is left behind."""
    deploy(tmp_path, hanging, "pdctl", "0.1.0")
    ran = run(tmp_path, "probe", "--timeout", "2", "-o", "json")
    assert json.loads(ran.stdout)["results"][0]["held_by"] == []
    assert hanging.client_left(10.0)


def test_unknown_version_counts_as_not_safe(tmp_path: Path, hanging: Hanging) -> None:
    """What is not known to survive a client that leaves is treated as if it did not."""
    deploy(tmp_path, hanging, "vllm", "0.99.0")
    ran = run(tmp_path, "probe", "--timeout", "2", "-o", "json")
    assert len(json.loads(ran.stdout)["results"][0]["held_by"]) == 1
    assert not hanging.client_left(0.5)
