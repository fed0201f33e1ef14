"""A real prefill and a real decode of different tensor-parallel sizes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.serving.rig import Pair, Process, engine, pair, running, until
from tests.serving.test_ranks import FLAGS, requests, texts

pytestmark = pytest.mark.slow
SIZES = {"1 to 2": ("1", "2", {}), "2 to 1 over tcp": ("2", "1", {"UCX_TLS": "tcp"})}


@pytest.fixture(scope="module")
def alone(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The same engine without a split, in one rank."""
    with running(process := engine("unified", tiny_model_dir, tmp_path_factory.mktemp("alone"), *FLAGS)):
        yield process


@pytest.fixture(scope="module", params=SIZES.values(), ids=SIZES.keys())
def sides(
    request: pytest.FixtureRequest, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    prefill, decode, environment = request.param
    flags = {"prefill_flags": ("--tp", prefill), "decode_flags": ("--tp", decode)}
    with pair(tiny_model_dir, tmp_path_factory.mktemp("sides"), *FLAGS, environment=environment, **flags) as both:
        yield both


def long_requests(count: int) -> list[dict[str, object]]:
    """Return completions that keep both sides busy: 25 chunks and 100 tokens each, more than fit into a pool."""
    chance = random.Random(13)
    fixed = {"model": "test", "max_tokens": 100, "temperature": 0, "ignore_eos": True}
    return [{**fixed, "prompt": [chance.randrange(3, 260) for _ in range(400)]} for _ in range(count)]


def pair_texts(sides: Pair, bodies: list[dict[str, object]]) -> list[str]:
    """Return decode's answers, asked at once."""

    def ask(body: dict[str, object]) -> str:
        prefill, decode = sides.post("/v1/completions", body)
        assert (prefill.status_code, decode.status_code) == (200, 200), prefill.text + decode.text
        return str(decode.json()["choices"][0]["text"])

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, bodies))


def test_sides_of_different_sizes_say_what_one_rank_says_alone(sides: Pair, alone: Process) -> None:
    """Requests of every kind, in float64; afterwards nothing is held, and the canary has gone every way."""
    bodies = requests(20)
    assert pair_texts(sides, bodies) == texts(alone, bodies)
    until(sides.is_idle, 5, "both ledgers free")
    for side in (sides.prefill, sides.decode):
        until(
            lambda side=side: [peer["state"] for peer in side.get("/health/transfer")["peers"]] == ["ok"], 25, "canary"
        )


def test_a_storm_of_aborts_leaves_both_sides_together(sides: Pair, alone: Process) -> None:
    """50 clients leave at random moments, others stay: these get their tokens, and every page comes back."""
    chance = random.Random(12)
    stay = requests(10)

    def leave(_: int) -> None:
        prompt = [chance.randrange(3, 260) for _ in range(chance.randrange(5, 200))]
        with contextlib.suppress(httpx.TimeoutException):
            body = {"model": "test", "prompt": prompt, "max_tokens": 400, "ignore_eos": True}
            sides.post("/v1/completions", body, chance.uniform(0.02, 0.8))

    with ThreadPoolExecutor(12) as pool:
        storm = [pool.submit(leave, number) for number in range(50)]
        assert pair_texts(sides, stay) == texts(alone, stay)
        for each in storm:
            each.result()
    until(sides.is_idle, 10, "both ledgers free")
    assert [side.get("/health")["status"] for side in (sides.prefill, sides.decode)] == ["ok", "ok"]


def test_a_side_whose_rank_died_comes_back_alone(sides: Pair, alone: Process) -> None:
    """kill -9 of its last rank ends the instance of two; started anew it works with the other, which nobody touched.

    What was under way ends on both sides: with an error, or with the right tokens.
    """
    other, died = sorted((sides.prefill, sides.decode), key=lambda side: len(side.get("/server_info")["rank_pids"]))
    untouched = other.get("/server_info")["rank_pids"]
    bodies = long_requests(8)
    expected = texts(alone, bodies)
    with ThreadPoolExecutor(8) as pool:
        ends = [pool.submit(_text_or_error, sides, body) for body in bodies]
        until(lambda: died.get("/rooms")["rooms"], 20, "a request under way")
        os.kill(died.get("/server_info")["rank_pids"][-1], signal.SIGKILL)
        assert died.child is not None
        assert died.child.wait(10) == 1
        assert all(end.result() in (None, text) for end, text in zip(ends, expected, strict=True))
    died.start().wait_ready()
    until(lambda: _text_or_error(sides, bodies[0]), 30, "the pair works again")
    assert pair_texts(sides, bodies) == expected
    assert other.get("/server_info")["rank_pids"] == untouched
    until(sides.is_idle, 5, "both ledgers free")


def _has_living_canary(side: Process) -> bool:
    return [peer["state"] for peer in side.get("/health/transfer")["peers"]] == ["ok"]


def _text_or_error(sides: Pair, body: dict[str, object]) -> str | None:
    """Return decode's answer, None when there is no whole one."""
    try:
        _, decode = sides.post("/v1/completions", body)
    except httpx.HTTPError:
        return None
    return str(decode.json()["choices"][0]["text"]) if decode.status_code == 200 else None
