"""`pdctl diagnose` on NVIDIA Dynamo with mock engines: healthy under load, and after SIGSTOP or kill -9 of one."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.pdctl_process import run
from tests.peers.dynamo_rig import Dynamo, dynamo, needs_dynamo

pytestmark = [pytest.mark.peer, needs_dynamo]


@pytest.fixture
def peer(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Dynamo]:
    """The three processes, and a deployment file of them in the folder."""
    with dynamo(tiny_model_dir, tmp_path) as made:
        attached = run(tmp_path, "attach", made.url, made.prefill_url, made.decode_url)
        assert (tmp_path / "pd.toml").exists(), attached.stderr
        yield made


def diagnosed(home: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and report."""
    ran = run(home, "diagnose", "--file", str(home / "pd.toml"), "-o", "json", *arguments)
    return ran.returncode, json.loads(ran.stdout)


def firm(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and instance of the causes that stand."""
    stands = ("established", "supported")
    return [(c["code"], c["subject"]["instance"]) for c in report["causes"] if c["confidence"] in stands]


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


def test_a_stopped_decode_is_named(peer: Dynamo, tmp_path: Path) -> None:
    """State T, whatever the frontend lists."""
    os.kill(peer.decode.pid, signal.SIGSTOP)
    code, report = diagnosed(tmp_path, "--read-only")
    assert (code, firm(report)[0]) == (1, ("PD0305", "decode-0"))


def test_a_killed_prefill_fails_the_service_and_blames_nobody_else(peer: Dynamo, tmp_path: Path) -> None:
    """One request through the frontend shows what clients get; decode and frontend are not accused."""
    peer.prefill.kill()
    peer.prefill.wait(20)
    code, report = diagnosed(tmp_path)
    assert (code, report["verdict"]) == (1, "failing")
    assert {"instance": "prefill-0", "symptom": "gone"}.items() <= next(
        row for row in report["symptoms"] if row["symptom"] == "gone"
    ).items()
    assert [instance for _, instance in firm(report) if instance != "prefill-0"] == []
