"""The two faults between ranks, each a real wedge of a real engine; the same provocation hurts nobody without it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.serving.rig import Process, engine, pair, running
from tests.serving.test_failpoints import passes as pair_passes
from tests.serving.test_failpoints import switch
from tests.waiting import eventually

FLAGS = ("--dtype", "float32", "--tp", "2", "--enable-failpoints", "--no-prefix-cache")


@pytest.fixture
def two(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Process]:
    """Two ranks that may be broken."""
    with running(process := engine("unified", tiny_model_dir, tmp_path, *FLAGS)):
        yield process


def passes(process: Process, within_s: float = 3.0) -> bool:
    """Say whether a request completes in time."""
    body = {"model": "test", "prompt": "hello", "max_tokens": 4, "temperature": 0}
    with contextlib.suppress(httpx.TimeoutException):
        return process.post("/v1/completions", body, within_s).status_code == 200
    return False


def leave(process: Process) -> None:
    """Send a request whose client goes away after its first token, and wait until the scheduler has heard of it."""
    body = {"model": "test", "prompt": "hello", "max_tokens": 3000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", process.url + "/v1/completions", json=body, timeout=60) as answer:
        next(answer.iter_raw())
    eventually(lambda: not process.get("/rooms")["rooms"])


def newest_step(process: Process, rank: int) -> dict[str, Any]:
    """Return the newest record of a rank's steps."""
    records = process.get(f"/flight?last=50&rank={rank}")["records"]
    found: dict[str, Any] = [record for record in records if record["kind"].startswith("step")][-1]
    return found


def test_desync(two: Process) -> None:
    """After an abort rank 0 waits in a collective of a step that rank 1 has never heard of."""
    leave(two)
    assert passes(two, 60)
    switch(two, "desync")
    assert passes(two, 60)
    leave(two)
    assert not passes(two)
    ahead, behind = newest_step(two, 0), newest_step(two, 1)
    assert (ahead["kind"], behind["kind"]) == ("step_begin", "step_end")
    assert ahead["subject"] == behind["subject"] + 1
    assert not passes(two)
    assert newest_step(two, 0) == ahead
    assert all(map(psutil.pid_exists, two.get("/server_info")["rank_pids"]))


def test_zombie(two: Process) -> None:
    """A rank is dead, /health answers 200, and no request completes any more."""
    assert passes(two, 60)
    pids = two.get("/server_info")["rank_pids"]
    switch(two, "zombie")
    eventually(lambda: not psutil.pid_exists(pids[1]), 5)
    assert not passes(two)
    assert httpx.get(two.url + "/health").status_code == 200
    assert not passes(two, 11.0), "longer than a loop may stand still before /health says so"
    assert httpx.get(two.url + "/health").status_code == 200
    assert psutil.pid_exists(pids[0])


@pytest.mark.parametrize("broken", ["prefill", "decode"])
def test_zombie_in_a_pair(tiny_model_dir: Path, tmp_path: Path, broken: str) -> None:
    """Transfers wait for the dead rank's part; neither they nor the client that leaves end the instance."""
    with pair(tiny_model_dir, tmp_path, *FLAGS) as sides:
        assert pair_passes(sides, within_s=60)
        victim = sides.prefill if broken == "prefill" else sides.decode
        pids = victim.get("/server_info")["rank_pids"]
        switch(victim, "zombie")
        eventually(lambda: not psutil.pid_exists(pids[1]), 5)
        assert not pair_passes(sides)
        assert not pair_passes(sides, within_s=11.0), "longer than a fence may hang"
        assert [httpx.get(side.url + "/health").status_code for side in (sides.prefill, sides.decode)] == [200, 200]
        assert all(victim.get("/health")["threads"].values())
        assert psutil.pid_exists(pids[0])


def test_one_rank_alone_has_no_failpoint_of_several(tiny_model_dir: Path, tmp_path: Path) -> None:
    """The answer names those that there are."""
    with running(process := engine("unified", tiny_model_dir, tmp_path, "--enable-failpoints")):
        answer = process.post("/failpoints", {"name": "desync", "on": True})
    assert answer.status_code == 404
    assert "blocking-io" in answer.json()["error"]["message"]
    assert "zombie" not in answer.json()["error"]["message"].partition("there are")[2]
