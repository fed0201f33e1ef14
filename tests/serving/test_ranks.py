"""One real engine as `unified` with several tensor-parallel ranks, over HTTP."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.serving.rig import Process, engine, is_idle, running
from tests.waiting import eventually

FLAGS = ("--dtype", "float64", "--chunk-tokens", "16", "--page-size", "4", "--kv-tokens", "2048")
GRAMMAR = {
    "type": "json_schema",
    "json_schema": {"name": "x", "schema": {"type": "array", "items": {"type": "boolean"}}},
}


@pytest.fixture(scope="module")
def one(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The whole model in one rank, one step at a time: what the others are compared with."""
    folder = tmp_path_factory.mktemp("one")
    with running(process := engine("unified", tiny_model_dir, folder, *FLAGS, "--schedule", "normal")):
        yield process


@pytest.fixture(scope="module")
def two(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Two ranks, planning ahead."""
    with running(process := engine("unified", tiny_model_dir, tmp_path_factory.mktemp("two"), *FLAGS, "--tp", "2")):
        yield process


def requests(count: int) -> list[dict[str, Any]]:
    """Return completions of every kind: greedy, seeded, penalties, stops, grammars, shared beginnings."""
    chance = random.Random(3)
    kinds: tuple[dict[str, Any], ...] = (
        {"temperature": 0},
        {"temperature": 1, "seed": 7},
        {"temperature": 0.8, "seed": 8, "repetition_penalty": 1.2, "top_p": 0.9},
        {"temperature": 1, "seed": 9, "response_format": GRAMMAR},
        {"temperature": 0, "stop": ["a", "e", "\n"]},
    )
    return [
        {
            "model": "test",
            "prompt": [5] * 12 + [chance.randrange(3, 260) for _ in range(chance.randrange(1, 60))],
            "max_tokens": chance.randrange(1, 32),
            **kinds[at % len(kinds)],
        }
        for at in range(count)
    ]


def texts(process: Process, bodies: list[dict[str, Any]]) -> list[str]:
    """Return all answers, asked at once."""

    def ask(body: dict[str, Any]) -> str:
        answer = process.post("/v1/completions", body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, bodies))


def test_two_ranks_give_the_tokens_of_one(one: Process, two: Process) -> None:
    """Requests of every kind, in float64."""
    bodies = requests(20)
    assert texts(two, bodies) == texts(one, bodies)
    eventually(lambda: is_idle(two))


@pytest.mark.slow
def test_four_ranks_give_the_tokens_of_one(one: Process, tiny_model_dir: Path, tmp_path: Path) -> None:
    """Two KV heads for four ranks: two ranks hold the same one."""
    bodies = requests(10)
    with running(four := engine("unified", tiny_model_dir, tmp_path, *FLAGS, "--tp", "4")):
        assert texts(four, bodies) == texts(one, bodies)


def test_a_storm_of_aborts_leaves_the_ranks_together(one: Process, two: Process) -> None:
    """50 clients leave at random moments, others stay: these get their tokens, and every page comes back."""
    chance = random.Random(11)
    stay = requests(10)

    def leave(_: int) -> None:
        body = {"prompt": [chance.randrange(3, 260) for _ in range(chance.randrange(5, 200))], "max_tokens": 400}
        with contextlib.suppress(httpx.TimeoutException):
            two.post("/v1/completions", {"model": "test", "ignore_eos": True, **body}, chance.uniform(0.02, 0.6))

    with ThreadPoolExecutor(12) as pool:
        storm = [pool.submit(leave, number) for number in range(50)]
        assert texts(two, stay) == texts(one, stay)
        for each in storm:
            each.result()
    eventually(lambda: is_idle(two))
    assert two.get("/health")["status"] == "ok"


def test_every_rank_has_a_flight_recorder(two: Process) -> None:
    """The same steps in both, and each says whose it is."""
    texts(two, requests(1))
    rings = [two.get(f"/flight?last=2&rank={rank}") for rank in (0, 1)]
    assert [ring["rank"] for ring in rings] == [0, 1]
    assert [ring["pid"] for ring in rings] == two.get("/server_info")["rank_pids"]
    steps = [[(record["kind"], record["subject"]) for record in ring["records"]] for ring in rings]
    assert steps[0] == steps[1]
    assert httpx.get(two.url + "/flight?rank=2").status_code == 404


def streamed(process: Process, started: threading.Event) -> str:
    """Return everything a long stream says."""
    body = {"model": "test", "prompt": "hello", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    said = []
    with httpx.stream("POST", process.url + "/v1/completions", json=body, timeout=60) as answer:
        for piece in answer.iter_text():
            said.append(piece)
            started.set()
    return "".join(said)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_ends_the_whole_instance(tiny_model_dir: Path, tmp_path: Path, rank: int) -> None:
    """kill -9: the stream gets an error event, the log the reason, no process is left, the exit code is 1."""
    flags = (*FLAGS, "--tp", "2", "--max-context", "4096", "--kv-tokens", "8192")
    with running(process := engine("unified", tiny_model_dir, tmp_path, *flags)), ThreadPoolExecutor(1) as pool:
        pids = process.get("/server_info")["rank_pids"]
        started = threading.Event()
        stream = pool.submit(streamed, process, started)
        assert started.wait(20)
        os.kill(pids[rank], signal.SIGKILL)
        assert process.child is not None
        assert process.child.wait(5) == 1
        assert "scheduler_died" in stream.result()
        assert f"rank {rank} (pid {pids[rank]}) was killed by SIGKILL; this instance ends" in process.log_tail()
        eventually(lambda: not any(map(psutil.pid_exists, pids)), 5)


def test_a_step_that_a_rank_never_ends_ends_the_instance(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Rank 1 is stopped in the middle of its life: rank 0 waits in a collective until the stuck clock runs out."""
    flags = (*FLAGS, "--tp", "2", "--stuck-timeout", "2")
    with running(process := engine("unified", tiny_model_dir, tmp_path, *flags)), ThreadPoolExecutor(1) as pool:
        pids = process.get("/server_info")["rank_pids"]
        os.kill(pids[1], signal.SIGSTOP)
        body = {"model": "test", "prompt": "hello", "max_tokens": 4}
        answer = pool.submit(process.post, "/v1/completions", body)
        assert process.child is not None
        assert process.child.wait(30) == 1
        assert (answer.result().status_code, answer.result().json()["error"]["code"]) == (503, "scheduler_died")
        log = process.log_tail(200)
        assert "the loop has not moved for the length of the stuck clock; stacks follow" in log
        assert "in all_reduce" in log
        assert f"rank 0 (pid {pids[0]}) exited with code 70" in log
        eventually(lambda: not any(map(psutil.pid_exists, pids)), 5)


def test_ranks_die_with_the_api_process(tiny_model_dir: Path, tmp_path: Path) -> None:
    """However it ends."""
    with running(process := engine("unified", tiny_model_dir, tmp_path, *FLAGS, "--tp", "2")):
        pids = process.get("/server_info")["rank_pids"]
        os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: not any(map(psutil.pid_exists, pids)), 5)


def test_a_drain_ends_all_ranks(tiny_model_dir: Path, tmp_path: Path) -> None:
    """SIGTERM to every process at once, as systemd does: the answer that runs is finished, exit 0."""
    with running(process := engine("unified", tiny_model_dir, tmp_path, *FLAGS, "--tp", "2")):
        pids = process.get("/server_info")["rank_pids"]
        with ThreadPoolExecutor(1) as pool:
            body = {"model": "test", "prompt": "hello", "max_tokens": 200, "ignore_eos": True, "temperature": 0}
            answer = pool.submit(process.post, "/v1/completions", body)
            eventually(lambda: process.get("/rooms")["rooms"])
            for pid in (*pids, process.pid):
                os.kill(pid, signal.SIGTERM)
            assert answer.result().json()["usage"]["completion_tokens"] == 200
        assert process.child is not None
        assert process.child.wait(20) == 0
        assert not any(map(psutil.pid_exists, pids))


def test_more_ranks_than_heads_are_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    """The model has four query heads: exit 2, one line that says so, nothing started."""
    process = engine("unified", tiny_model_dir, tmp_path, *FLAGS, "--tp", "5").start()
    assert process.child is not None
    try:
        assert process.child.wait(60) == 2
    finally:
        process.child.kill()
    (line,) = process.log_tail().splitlines()
    assert "4 query heads" in line
