"""`pdctl diagnose` on NVIDIA Dynamo with mock engines: healthy under load, and after SIGSTOP or kill -9 of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.pdctl_process import run
from tests.peers.diagnosing import diagnosed, firm
from tests.peers.dynamo_rig import Dynamo, dynamo
from tests.peers.pythons import needs

pytestmark = [pytest.mark.peer, needs("dynamo")]


@pytest.fixture
def peer(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Dynamo]:
    """The three processes, and a deployment file of them in the folder."""
    with dynamo(tiny_model_dir, tmp_path) as made:
        attached = run(tmp_path, "attach", *(server.url for server in made.servers))
        assert (tmp_path / "pd.toml").exists(), attached.stderr
        yield made


def test_under_load_it_is_healthy(peer: Dynamo, tmp_path: Path) -> None:
    """Workers that say 503 `notready` serve, and random tokens accuse nobody of damage."""
    is_over = threading.Event()

    def load() -> None:
        while not is_over.is_set():
            peer.ask()

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        code, report = diagnosed(tmp_path, "--read-only")
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert (code, report["verdict"], firm(report)) == (0, "healthy", [])


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_stopped_side_is_named(peer: Dynamo, tmp_path: Path, side: str) -> None:
    """State T, whatever the frontend lists."""
    getattr(peer, side).signal(signal.SIGSTOP)
    code, report = diagnosed(tmp_path, "--read-only")
    assert (code, firm(report)[0]) == (1, ("PD0305", f"{side}-0"))


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_killed_side_is_named_and_nobody_else(peer: Dynamo, tmp_path: Path, side: str) -> None:
    """The process that was attached to is gone, and so is its port; the others and the frontend are not accused."""
    getattr(peer, side).kill()
    code, report = diagnosed(tmp_path)
    assert (code, firm(report)[0]) == (1, ("PD0101", f"{side}-0"))
    assert {instance for _, instance in firm(report)} == {f"{side}-0"}
