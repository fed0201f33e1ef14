"""`pdctl diagnose` as an operator calls it, on a real pair behind the real router."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from pdctl.deployment.files import save
from tests.cli.pdctl_process import run
from tests.serving.rig import Pair, Process, pair, router, until
from tests.serving.test_probe import deployment


@pytest.fixture(scope="module")
def routed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Process]]:
    """A pair with the tiny model and smg in front of it."""
    folder = tmp_path_factory.mktemp("diagnosed")
    with pair(tiny_model_dir, folder, "--dtype", "float64") as sides, router(sides, folder) as smg:
        yield sides, smg


def diagnosed(home: Path, routed: tuple[Pair, Process], *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Return exit code, report and stderr of a live diagnosis."""
    file = home / "live.toml"
    save(deployment(routed), file)
    ran = run(home, "diagnose", "--file", str(file), "-o", "json", *arguments)
    return ran.returncode, json.loads(ran.stdout), ran.stderr


def test_an_idle_pair_is_healthy_once_a_request_has_passed(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """Empty queues prove nothing; the one tagged request does."""
    code, report, _ = diagnosed(tmp_path, routed)
    assert (code, report["verdict"]) == (0, "healthy")
    assert len(report["probe"]) == 1
    firm = [cause for cause in report["causes"] if cause["confidence"] != "hypothesis"]
    assert not [cause for cause in firm if cause["level"] == "error"]


def test_read_only_sends_nothing_and_says_that_it_does_not_know(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """An idle system without a passed probe is unknown, exit 3."""
    before = len(routed[0].decode.get("/rooms/recent")["rooms"])
    code, report, _ = diagnosed(tmp_path, routed, "--read-only")
    assert (code, report["verdict"]) == (3, "unknown")
    assert len(routed[0].decode.get("/rooms/recent")["rooms"]) <= before


def test_a_stopped_decode_is_named_from_the_live_system_and_from_what_was_kept(
    routed: tuple[Pair, Process], tmp_path: Path
) -> None:
    """PD0305 on decode-0, exit 1; the kept folder gives the very same report."""
    root = psutil.Process(routed[0].decode.pid)
    processes = [root, *root.children(recursive=True)]
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        code, report, said = diagnosed(tmp_path, routed)
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGCONT)
    assert code == 1
    cause = report["causes"][0]
    assert (cause["code"], cause["subject"]["instance"], cause["confidence"]) == ("PD0305", "decode-0", "established")
    kept = said.rpartition("kept for 14 days: ")[2].strip()
    again = json.loads(run(tmp_path, "diagnose", kept, "--name", "test", "-o", "json").stdout)
    assert again == report
    until(routed[0].is_idle, 10, "recovered by itself")


def test_a_saturated_pair_is_no_alarm(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """Thirty-two clients at once on tiny engines: queues are long and move, nothing is broken, exit 0."""
    is_over = threading.Event()

    def load() -> None:
        body = {"model": "test", "prompt": "x" * 200, "max_tokens": 64, "ignore_eos": True}
        while not is_over.is_set():
            routed[1].post("/v1/completions", body)

    threads = [threading.Thread(target=load) for _ in range(32)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(routed[0].decode.get("/rooms")["rooms"]) > 4, 60, "requests in flight")
        code, report, _ = diagnosed(tmp_path, routed, "--read-only")
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    firm = [cause["code"] for cause in report["causes"] if cause["confidence"] != "hypothesis"]
    assert (code, report["verdict"] in ("healthy", "not_a_wedge")) == (0, True), firm
    assert not [code for code in firm if not code.startswith("PD09")]


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_side_that_dies_with_a_request_in_hand_is_named(tiny_model_dir: Path, tmp_path: Path, side: str) -> None:
    """Nobody manages it: the look before has seen its process, which is gone now. The other side is not accused."""
    with pair(tiny_model_dir, tmp_path, "--chunk-tokens", "16") as sides, router(sides, tmp_path) as smg:
        assert diagnosed(tmp_path, (sides, smg))[0] == 0
        body = {"model": "test", "prompt": "hello " * 600, "max_tokens": 400, "ignore_eos": True}
        with ThreadPoolExecutor(1) as pool:
            pool.submit(smg.post, "/v1/completions", body)
            until(lambda: sides.decode.get("/rooms")["rooms"], 30, "a request in flight")
            getattr(sides, side).kill()
            code, report, _ = diagnosed(tmp_path, (sides, smg))
    firm = [(cause["code"], cause["subject"]["instance"]) for cause in report["causes"] if cause["level"] == "error"]
    stands = [cause for cause in report["causes"] if cause["confidence"] == "established"]
    assert (code, firm[0]) == (1, ("PD0101", f"{side}-0"))
    assert [cause["code"] for cause in stands if cause["subject"]["instance"] not in (f"{side}-0", "router")] == []
