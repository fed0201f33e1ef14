"""`pdctl` on vLLM with NIXL behind vllm-router: attached, watched, proven, and after each way to lose one side."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from pdctl.collect import host_processes
from pdctl.deployment import router_answers
from pdctl.deployment.model import Role
from pdctl.deployment.running import find, with_missing
from tests.cli.pdctl_process import run
from tests.peers.diagnosing import diagnosed, firm
from tests.peers.hugging_face import write_directory
from tests.peers.pythons import needs
from tests.peers.servers import Server
from tests.peers.vllm_rig import Vllm, vllm

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(1800), needs("vllm", "vllm-router")]


@pytest.fixture(scope="module")
def started(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """The pair and its router with the real model; both engines start once for all tests, and after each kill."""
    folder = tmp_path_factory.mktemp("vllm")
    with vllm(write_directory(smollm2_path, folder / "model"), folder) as made:
        yield made


@pytest.fixture
def peer(started: Vllm, tmp_path: Path) -> Vllm:
    """All three well again, and a deployment file of them in the folder."""
    started.restore()
    attached = run(tmp_path, "attach", *addresses(started))
    assert attached.returncode == 0, attached.stderr
    return started


def addresses(peer: Vllm) -> tuple[str, str, str]:
    """Return what an operator gives: vLLM tells its role nowhere."""
    return f"prefill={peer.prefill.url}", f"decode={peer.decode.url}", peer.router.url


@contextmanager
def load(peer: Vllm) -> Iterator[None]:
    """Two clients that ask again and again; what they get does not matter."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            peer.passes()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_it_is_attached_and_well(peer: Vllm, tmp_path: Path) -> None:
    """Roles as they were told, each family and version as the endpoints say, all of them well."""
    text = (tmp_path / "pd.toml").read_text()
    assert [text.count(f'dialect = "{name}"') for name in ("vllm", "vllm-router")] == [2, 1]
    assert text.count('version = "0.32.0"') == 2
    status = run(tmp_path, "status", "--file", "pd.toml", "-o", "json", "--timeout", "10")
    assert status.returncode == 0, status.stdout


def test_a_request_is_proven(peer: Vllm, tmp_path: Path) -> None:
    """Through the router, and by the handover of kv_transfer_params without it: the answer is the known one."""
    for way in ((), ("--direct",)):
        proven = run(tmp_path, "probe", "--file", "pd.toml", "--timeout", "50", *way)
        assert proven.returncode == 0, proven.stdout + proven.stderr


def test_under_load_it_is_healthy(peer: Vllm, tmp_path: Path) -> None:
    """Requests pass between the samples; nobody is accused."""
    with load(peer):
        code, report = diagnosed(tmp_path, "--read-only", "--timeout", "50")
    assert (code, report["verdict"], firm(report)) == (0, "healthy", [])


def test_it_is_found_with_nothing_configured(peer: Vllm) -> None:
    """Command lines and ports tell who it is; other deployments on the machine are left out of the table."""
    found = find(processes_of(*peer.servers))
    taken = {(item.role.value, item.dialect, item.url) for item in found.deployment.instances}
    assert {("prefill", "vllm", peer.prefill.url), ("decode", "vllm", peer.decode.url)} < taken
    assert [item.dialect for item in found.deployment.instances if item.role == "router"] == ["vllm-router"]


def processes_of(*servers: Server) -> host_processes.Table:
    """Return this host's table with the processes of these servers alone."""
    table = host_processes.read_now(deadline_s=10)
    rows = (row for server in servers for row in table.tree(server.pid))
    return msgspec.structs.replace(table, processes=tuple(rows))


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_stopped_side_is_named(peer: Vllm, tmp_path: Path, side: str) -> None:
    """SIGSTOP: the kernel and the TCP stack answer, and the router counts it healthy."""
    server: Server = getattr(peer, side)
    with load(peer):
        server.signal(signal.SIGSTOP)
        code, report = diagnosed(tmp_path, "--timeout", "50")
        server.signal(signal.SIGCONT)
    assert (code, firm(report)[0]) == (1, ("PD0305", f"{side}-0"))


def test_a_stopped_engine_behind_a_server_that_answers_is_named(peer: Vllm, tmp_path: Path) -> None:
    """Only EngineCore of decode is stopped: its /health goes on to say 200."""
    (core,) = (pid for pid, name in peer.decode.processes().items() if name.startswith("VLLM::EngineCor"))
    os.kill(core, signal.SIGSTOP)
    code, report = diagnosed(tmp_path, "--read-only", "--timeout", "50")
    peer.decode.signal(signal.SIGCONT)
    assert (code, firm(report)[0]) == (1, ("PD0305", "decode-0"))


def test_prefill_that_dies_between_the_legs_is_named(peer: Vllm, tmp_path: Path) -> None:
    """It kept KV for a decode that comes too late to read it: that request fails, and prefill is what is gone."""
    leg = peer.prefill_leg()
    peer.prefill.kill()
    assert peer.ask(peer.decode.url, **leg).status_code == 500
    for arguments in (("--file", "pd.toml"), addresses(peer)):
        code, report = diagnosed(tmp_path, "--timeout", "50", where=arguments)
        assert (code, firm(report)[0]) == (1, ("PD0101", "prefill-0"))
        assert [instance for _, instance in firm(report) if instance == "decode-0"] == []
    found = find(processes_of(peer.decode, peer.router))
    told = router_answers.roles(found.deployment.of_role(Role.ROUTER))
    assert peer.prefill.url in [item.url for item in with_missing(found, told).deployment.instances]


def test_a_killed_decode_is_named(peer: Vllm, tmp_path: Path) -> None:
    """kill -9 under load; prefill, which keeps KV for readers that never come, is not accused."""
    with load(peer):
        peer.decode.kill()
        code, report = diagnosed(tmp_path, "--timeout", "50")
    assert (code, firm(report)[0]) == (1, ("PD0101", "decode-0"))
    assert [instance for _, instance in firm(report) if instance == "prefill-0"] == []
