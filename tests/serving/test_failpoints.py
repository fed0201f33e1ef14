"""Each failpoint makes the wedge it names, in real engines; and the same provocation hurts nobody without it."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.rig import Pair, Process, pair, until

FLAGS = (
    "--dtype",
    "float32",
    "--chunk-tokens",
    "16",
    "--kv-tokens",
    "1024",
    "--pairing-timeout",
    "1",
    "--no-prefix-cache",
)

NUMBERS = itertools.count()
"""One for each prompt that must be new."""


@pytest.fixture
def sides(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Pair]:
    """A pair that may be broken, with pools of 64 pages."""
    with pair(tiny_model_dir, tmp_path, "--enable-failpoints", *FLAGS) as both:
        yield both


def body(tokens: int, **more: object) -> dict[str, Any]:
    """A greedy request with a prompt of that many tokens."""
    ids = [10 + number % 200 for number in range(tokens)]
    return {"input_ids": ids, "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}, **more}


def passes(sides: Pair, tokens: int = 40, within_s: float = 3.0) -> bool:
    """Say whether a request completes in time."""
    try:
        return [leg.status_code for leg in sides.post("/generate", body(tokens), within_s)] == [200, 200]
    except httpx.TimeoutException:
        return False


def leave(sides: Pair, tokens: int, after_s: float) -> None:
    """Send a request whose client goes away; each time another prompt, which no prefix cache has."""
    number = next(NUMBERS)
    request = body(tokens)
    request["input_ids"][:2] = [10 + number // 200, 10 + number % 200]
    with contextlib.suppress(httpx.TimeoutException):
        sides.post("/generate", request, after_s)


def switch(process: Process, name: str, on: bool = True) -> None:
    """Switch a failpoint; the answer must show it."""
    answer = process.post("/failpoints", {"name": name, "on": on})
    assert answer.status_code == 200, answer.text
    assert {row["name"]: row["on"] for row in answer.json()}[name] is on


def leave_while_held(sides: Pair) -> None:
    """A client that leaves while prefill holds the 25 pages of its prompt, because decode gives none to it."""
    switch(sides.decode, "starved")
    with ThreadPoolExecutor(2) as pool:
        legs = sides.legs(body(400))
        prefill = pool.submit(sides.prefill.post, "/generate", legs, 3.0)
        decode = pool.submit(sides.decode.post, "/generate", legs, 1.0)
        until(lambda: sides.prefill.get("/ledger")["held_for_peer"] == 25, 5, "held")
        assert isinstance(decode.exception(), httpx.TimeoutException)
        prefill.exception()
    switch(sides.decode, "starved", on=False)


def offer_without_a_leg(sides: Pair) -> None:
    """Decode's leg alone, whose client leaves before the pairing clocks run out: decode says ABORT."""
    with pytest.raises(httpx.TimeoutException):
        sides.decode.post("/generate", sides.legs(body(20)), 0.4)


def is_dead(process: Process, thread: str) -> Callable[[], bool]:
    return lambda: process.get("/health")["threads"][thread] is False


def test_mass_abort(sides: Pair) -> None:
    """Prefill's control thread dies on the first ABORT, and no request completes any more."""
    offer_without_a_leg(sides)
    assert passes(sides)
    switch(sides.prefill, "mass-abort")
    assert passes(sides)
    offer_without_a_leg(sides)
    until(is_dead(sides.prefill, "transfer-control"), 20, "the thread dead")
    assert not passes(sides)


def test_abort_race(sides: Pair) -> None:
    """Prefill's transfer thread dies on a chunk of a room that was aborted, and later prompts are never offered."""
    provoke: Callable[[], None] = lambda: leave(sides, 900, 0.1)  # noqa: E731
    provoke()
    until(sides.is_idle, 5, "idle")
    assert passes(sides)
    switch(sides.prefill, "abort-race")

    def is_over() -> bool:
        provoke()
        return is_dead(sides.prefill, "transfer-nixl")()

    until(is_over, 60, "the thread dead")
    assert not passes(sides)


def test_status_thread(sides: Pair) -> None:
    """Decode's control thread dies when frames of two rooms interleave."""

    def burst() -> list[bool]:
        with ThreadPoolExecutor(6) as pool:
            return list(pool.map(lambda _: passes(sides, 100, 5.0), range(6)))

    assert all(burst())
    switch(sides.decode, "status-thread")
    assert passes(sides)

    def is_over() -> bool:
        burst()
        return is_dead(sides.decode, "transfer-control")()

    until(is_over, 60, "the thread dead")
    assert not passes(sides)


def test_stuck_handle(sides: Pair) -> None:
    """An aborted READ that never completes blocks decode's transfer thread for every later room; health says ok."""
    leave(sides, 40, 0.2)
    assert passes(sides)
    switch(sides.decode, "stuck-handle")
    leave(sides, 40, 1.0)
    assert not passes(sides)
    assert sides.decode.get("/health")["status"] == "ok"
    switch(sides.decode, "stuck-handle", on=False)
    until(lambda: passes(sides), 20, "healed")


def test_lost_failure(sides: Pair) -> None:
    """An end on decode is not told to prefill, whose leg waits on and holds its pages though others are served."""
    leave_while_held(sides)
    until(sides.is_idle, 5, "idle")
    switch(sides.decode, "lost-failure")
    with ThreadPoolExecutor(1) as pool:
        switch(sides.decode, "starved")
        legs = sides.legs(body(400))
        prefill = pool.submit(sides.prefill.post, "/generate", legs, 12.0)
        with pytest.raises(httpx.TimeoutException):
            sides.decode.post("/generate", legs, 1.0)
        until(lambda: not sides.decode.get("/rooms")["rooms"], 5, "decode is through with it")
        switch(sides.decode, "starved", on=False)
        assert passes(sides)
        assert sides.prefill.get("/ledger")["held_for_peer"] == 25
        with pytest.raises(httpx.TimeoutException):
            prefill.result()


def test_decode_restart(sides: Pair) -> None:
    """Prefill goes on talking to the decode that was; only its own restart helps."""
    assert passes(sides)
    sides.decode.kill()
    sides.decode.start().wait_ready()
    assert until(lambda: passes(sides), 10, "served after a restart of decode alone")
    switch(sides.prefill, "decode-restart")
    assert passes(sides)
    sides.decode.kill()
    sides.decode.start().wait_ready()
    assert not passes(sides)
    assert sides.prefill.get("/health")["status"] == "ok"
    sides.prefill.kill()
    sides.prefill.start().wait_ready()
    until(lambda: passes(sides), 10, "served after a restart of prefill")


def test_corrupt_page(sides: Pair) -> None:
    """Wrong bytes land, and the answer is another one with status 200."""

    def answer() -> tuple[int, list[int]]:
        decode = sides.post("/generate", body(40))[1]
        return decode.status_code, decode.json()["output_ids"]

    right = answer()
    assert answer() == right
    switch(sides.decode, "corrupt-page")
    wrong = answer()
    assert (wrong[0], right[0]) == (200, 200)
    assert wrong[1] != right[1]


def test_leak(sides: Pair) -> None:
    """Pages of an aborted request stay taken when no room is left."""
    leave_while_held(sides)
    until(sides.is_idle, 5, "idle")
    switch(sides.prefill, "leak")
    leave_while_held(sides)
    until(lambda: not sides.prefill.get("/rooms")["rooms"], 5, "no room left")
    assert sides.prefill.get("/ledger")["held_for_peer"] == 25


def test_starved(sides: Pair) -> None:
    """A room that can never fit keeps all others waiting behind it."""
    assert passes(sides)
    switch(sides.decode, "starved")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(passes, sides, 200, 8.0)
        until(lambda: sides.decode.get("/v1/loads")["queues"]["pages"] == 1, 5, "the first waits")
        assert not passes(sides, 40, 2.0)
        ledger = sides.decode.get("/ledger")
        assert ledger["free"] + ledger["cached"] == 64
        assert not first.result()


def test_blocking_io(sides: Pair) -> None:
    """The loop hangs in a call; the observer still answers, and the end of the call heals it."""
    assert passes(sides)
    switch(sides.decode, "blocking-io")
    assert not passes(sides)
    before = sides.decode.get("/health")["loop_age_s"]
    assert sides.decode.get("/health")["loop_age_s"] > before > 1
    switch(sides.decode, "blocking-io", on=False)
    until(lambda: passes(sides), 10, "healed")


def test_no_failpoint_without_the_flag(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Without --enable-failpoints there is nothing to switch."""
    with pair(tiny_model_dir, tmp_path, *FLAGS) as sides:
        for answer in (
            httpx.get(sides.prefill.url + "/failpoints"),
            sides.decode.post("/failpoints", {"name": "leak", "on": True}),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_failpoints")


def test_off_costs_nothing() -> None:
    """A scheduler that was not asked for failpoints has no line of them in its process."""
    code = "import sys, engine.scheduler.__main__; raise SystemExit('engine.failpoints' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_failpoint_names_those_there_are(sides: Pair) -> None:
    """A wrong name is an error that lists the right ones; a prefill has no failpoints of decode."""
    answer = sides.prefill.post("/failpoints", {"name": "corrupt-page", "on": True})
    assert answer.status_code == 404
    assert "mass-abort" in answer.json()["error"]["message"]
