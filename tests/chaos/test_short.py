"""Chaos in a few minutes: whatever happens, no wedge, no wrong token, no leaked page, no changed prompt page."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.events import abort_storm, frames_heard, judge, proven_after, restart, stop_and_continue
from tests.chaos.hostile import HostilePrefill, assail_prefill, hostile_prefill
from tests.chaos.load import Case, Load, make_cases
from tests.serving.rig import Pair, engine, free_port, running

SEED = 20_261_129
FLAGS = ("--dtype", "float64", "--chunk-tokens", "64", "--kv-tokens", "8192", "--no-prefix-cache")


@pytest.fixture(scope="module")
def cases(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Prompts with the answers of an engine without a split."""
    alone = engine("unified", tiny_model_dir, tmp_path_factory.mktemp("alone"), *FLAGS)
    with running(alone):
        return make_cases(alone, SEED)


@pytest.fixture(scope="module")
def hostile() -> Iterator[HostilePrefill]:
    with hostile_prefill(SEED) as made:
        yield made


@pytest.fixture(scope="module", params=["default", "tcp"])
def sides(
    request: pytest.FixtureRequest,
    tiny_model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
    hostile: HostilePrefill,
) -> Iterator[Pair]:
    """A pair over shared memory, and one over TCP; decode also knows a prefill that is none."""
    print(f"seed {SEED}, UCX_TLS {request.param}")
    folder, bootstrap = tmp_path_factory.mktemp("chaos"), free_port()
    environment = {"UCX_TLS": "tcp"} if request.param == "tcp" else {}
    prefill = engine(
        "prefill", tiny_model_dir, folder, "--bootstrap-port", str(bootstrap), *FLAGS, environment=environment
    )
    peers = f"127.0.0.1:{bootstrap},{hostile.bootstrap}"
    decode = engine(
        "decode", tiny_model_dir, folder, "--peers", peers, "--recheck-prompts", *FLAGS, environment=environment
    )
    with running(prefill, decode):
        yield Pair(prefill, decode, bootstrap)


def assert_unharmed(sides: Pair, crashes: int = 0) -> None:
    """Nothing leaked, nothing left, no thread crashed, no prompt page changed."""
    verdict = judge(sides)
    assert (verdict.leaked, verdict.rooms, verdict.restarts) == (0, 0, crashes), verdict
    assert verdict.rechecked > 0
    assert verdict.changed == 0


def assert_right(load: Load) -> None:
    """No request was answered wrongly or hangs; failures were told as such."""
    outcomes = load.tally.outcomes
    print(dict(outcomes), f"longest outage {load.tally.longest_outage_s:.1f} s")
    assert outcomes["right"] > 0
    assert (outcomes["wrong"], outcomes["wedged"]) == (0, 0), outcomes


def test_fifty_aborts(sides: Pair, cases: list[Case]) -> None:
    """Clients that leave at random moments harm nobody: the others are all answered right."""
    load = Load(sides, cases, SEED)
    with load.running():
        tally = abort_storm(sides, cases, SEED, aborts=50)
    assert tally.outcomes["left"] > 10, tally.outcomes
    assert tally.outcomes["wrong"] == 0
    assert_right(load)
    if not sides.prefill.environment:
        assert load.tally.outcomes["right"] == load.tally.outcomes.total(), load.tally.outcomes
    assert_unharmed(sides)


def test_stops(sides: Pair, cases: list[Case]) -> None:
    """Three SIGSTOPs a side, one longer than the silence clock: service comes back after SIGCONT."""
    load, chance = Load(sides, cases, SEED + 1), random.Random(SEED)
    with load.running():
        for name in ("decode", "prefill"):
            for seconds in (0.5, 2.0, 6.5):
                took_s = stop_and_continue(sides, name, seconds, cases[0], chance)
                print(f"{name} stopped for {seconds} s: proven {took_s:.1f} s after")
    assert_right(load)
    assert_unharmed(sides)


def test_hostile_frames(sides: Pair, cases: list[Case], hostile: HostilePrefill) -> None:
    """5,000 frames on each control socket: no thread crashes, and a request passes right after."""
    assail_prefill(f"127.0.0.1:{sides.bootstrap_port}", SEED, 5_000, lambda: frames_heard(sides.prefill))
    hostile.assail(5_000, lambda: frames_heard(sides.decode))
    proven_after(sides, cases[0], random.Random(SEED))
    assert_unharmed(sides)
    for side in (sides.prefill, sides.decode):
        assert side.get("/health")["status"] == "ok"


def test_restarts(sides: Pair, cases: list[Case]) -> None:
    """Three kill -9 a side under load: requests pass again once the new process is healthy, the peer lives on."""
    load, chance = Load(sides, cases, SEED + 2), random.Random(SEED)
    with load.running():
        for name in ("decode", "prefill") * 3:
            took_s = restart(sides, name, cases[0], chance)
            print(f"{name} restarted: proven {took_s:.1f} s after its health")
    assert_right(load)
    proven_after(sides, cases[0], chance)
    assert_unharmed(sides)
