"""The long form: `python -m tests.chaos PART [--seed N] [--scale F] [--tcp] [--schedule S] [--tp N]`, one table a run.

The seed replays it.

Parts: aborts (1,000 at random phases), mass (140 in flight aborted at once, 20 times), restarts (50 of one side, then
50 of the other), stops (50 a side: 1, 4, 10, 30 s, three ending in kill -9), fuzz (100,000 frames on each control
socket), mixed (30 minutes of all), states (the exploration of the tables: one room with three frames in flight, and two
rooms). What was not restarted is measured before and after: descriptors, threads, children, memory.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.events import (
    RECOVERY_LIMIT_S,
    Verdict,
    abort_storm,
    frames_heard,
    judge,
    proven_after,
    restart,
    stop_and_continue,
)
from tests.chaos.footprint import Lives
from tests.chaos.hostile import HostilePrefill, assail_prefill, hostile_prefill
from tests.chaos.load import Case, Load, make_cases
from tests.chaos.states import explore_states
from tests.serving.rig import Pair, engine, free_port, running
from tests.tiny_model import write_tiny_model

FLAGS = ("--dtype", "float64", "--chunk-tokens", "64", "--kv-tokens", "8192", "--no-prefix-cache")
SIDES = ("prefill", "decode")
MIXED_S = 1800.0


@dataclass(frozen=True, slots=True)
class Setting:
    """How both engines run."""

    tcp: bool
    schedule: str
    tp: int

    @property
    def flags(self) -> tuple[str, ...]:
        return (*FLAGS, "--schedule", self.schedule, "--tp", str(self.tp))

    @property
    def environment(self) -> dict[str, str]:
        return {"UCX_TLS": "tcp"} if self.tcp else {}

    def __str__(self) -> str:
        return f"{'tcp' if self.tcp else 'default'}, {self.schedule}, TP{self.tp}"


@dataclass
class Run:
    """One part under way; `scale` 1 is the full size."""

    sides: Pair
    cases: list[Case]
    hostile: HostilePrefill
    seed: int
    scale: float
    chance: random.Random
    lives: Lives
    events: int = 0
    recovered_s: list[float] = field(default_factory=list)

    def times(self, full: int) -> int:
        """Return how often something is done at this scale."""
        return max(1, round(full * self.scale))

    def happened(self, what: str, took_s: float | None = None) -> None:
        """Count an event, say so, and see what it left on either side."""
        self.events += 1
        self.lives.note()
        if took_s is not None:
            self.recovered_s.append(took_s)
        print(f"  {self.events:5d} {what}" + ("" if took_s is None else f": proven after {took_s:.1f} s"), flush=True)


def aborts(run: Run) -> None:
    total = run.times(1000)
    tally = abort_storm(run.sides, run.cases, run.seed, total)
    run.events += total
    print(f"  aborting clients: {dict(tally.outcomes)}")
    assert tally.outcomes["wrong"] == 0


def mass(run: Run) -> None:
    for round_ in range(run.times(20)):
        abort_storm(run.sides, run.cases, run.seed + round_, aborts=140, at_once=140)
        run.happened("140 at once", proven_after(run.sides, run.cases[0], run.chance))


def restarts(run: Run) -> None:
    for name in SIDES:
        for _ in range(run.times(50)):
            run.happened(f"{name} killed", restart(run.sides, name, run.cases[0], run.chance))


def stops(run: Run) -> None:
    lengths = [1.0] * run.times(20) + [4.0] * run.times(15) + [10.0] * run.times(10) + [30.0] * run.times(2)
    plan = [(seconds, False) for seconds in lengths] + [(4.0, True)] * run.times(3)
    for seconds, kills in run.chance.sample(plan, len(plan)):
        for name in SIDES:
            took_s = stop_and_continue(run.sides, name, seconds, run.cases[0], run.chance, kills)
            run.happened(f"{name} stopped for {seconds:g} s" + (", then killed" if kills else ""), took_s)


def fuzz(run: Run) -> None:
    total = run.times(100_000)
    assail_prefill(f"127.0.0.1:{run.sides.bootstrap_port}", run.seed, total, lambda: frames_heard(run.sides.prefill))
    run.happened(f"{total} frames to prefill", proven_after(run.sides, run.cases[0], run.chance))
    run.hostile.assail(total, lambda: frames_heard(run.sides.decode))
    run.happened(f"{total} frames to decode", proven_after(run.sides, run.cases[0], run.chance))


def mixed(run: Run) -> None:
    until = time.monotonic() + MIXED_S * run.scale
    while time.monotonic() < until:
        name, first = run.chance.choice(SIDES), run.cases[0]
        draw = run.chance.random()
        if draw < 0.5:
            abort_storm(run.sides, run.cases, run.chance.getrandbits(30), aborts=40)
            run.happened("40 aborts")
        elif draw < 0.7:
            seconds = run.chance.choice((1.0, 4.0, 10.0))
            run.happened(
                f"{name} stopped for {seconds:g} s", stop_and_continue(run.sides, name, seconds, first, run.chance)
            )
        elif draw < 0.85:
            run.happened(f"{name} killed", restart(run.sides, name, first, run.chance))
        else:
            bootstrap, seed = f"127.0.0.1:{run.sides.bootstrap_port}", run.chance.getrandbits(30)
            assail_prefill(bootstrap, seed, 500, lambda: frames_heard(run.sides.prefill))
            run.happened("500 frames", proven_after(run.sides, first, run.chance))


PARTS: dict[str, Callable[[Run], None]] = {
    "aborts": aborts,
    "mass": mass,
    "restarts": restarts,
    "stops": stops,
    "fuzz": fuzz,
    "mixed": mixed,
}


@contextmanager
def deployment(folder: Path, hostile: HostilePrefill, setting: Setting) -> Iterator[Pair]:
    """Run a pair of the tiny model, whose decode also knows the hostile prefill."""
    bootstrap, model = free_port(), str(folder / "model")
    flags, environment = setting.flags, setting.environment
    prefill = engine("prefill", model, folder, "--bootstrap-port", str(bootstrap), *flags, environment=environment)
    peers = f"127.0.0.1:{bootstrap},{hostile.bootstrap}"
    decode = engine("decode", model, folder, "--peers", peers, "--recheck-prompts", *flags, environment=environment)
    with running(prefill, decode):
        yield Pair(prefill, decode, bootstrap)


def play(part: str, seed: int, scale: float, setting: Setting) -> int:
    """Run one part and print its table. 0: unharmed."""
    with tempfile.TemporaryDirectory() as name, hostile_prefill(seed) as hostile:
        folder = Path(name)
        write_tiny_model(folder / "model")
        alone = engine("unified", str(folder / "model"), folder, *FLAGS)
        with running(alone):
            cases = make_cases(alone, seed)
        with deployment(folder, hostile, setting) as sides:
            run = Run(sides, cases, hostile, seed, scale, random.Random(seed), Lives(sides))
            load = Load(sides, cases, seed)
            with load.running():
                PARTS[part](run)
            verdict = judge(sides)
    return tell(part, setting, run, load, verdict)


def tell(part: str, setting: Setting, run: Run, load: Load, verdict: Verdict) -> int:
    """Print the tables of a run. 0: unharmed."""
    outcomes = load.tally.outcomes
    lost = outcomes.total() - outcomes["right"] - outcomes["wrong"]
    late = sum(took_s > RECOVERY_LIMIT_S for took_s in run.recovered_s)
    harm = outcomes["wrong"] + outcomes["wedged"] + verdict.leaked + verdict.rooms + verdict.changed + verdict.restarts
    harm += sum(len(life.grown) for life in run.lives.outlived())
    slowest = f"{max(run.recovered_s):.1f} s" if run.recovered_s else "-"
    print(f"outcomes of the load: {dict(outcomes)}")
    print("| part | setting | seed | events | survived | lost | wrong | wedged | leaked pages | changed prompts |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {part} | {setting} | {run.seed} | {run.events} | {outcomes['right']} | {lost} "
        f"| {outcomes['wrong']} | {outcomes['wedged']} | {verdict.leaked} "
        f"| {verdict.changed} of {verdict.rechecked} |"
    )
    print(f"longest outage {load.tally.longest_outage_s:.1f} s; {verdict}")
    print(f"slowest recovery {slowest}, {late} of {len(run.recovered_s)} above {RECOVERY_LIMIT_S:g} s")
    print("| not restarted | events outlived | descriptors | threads | children | RSS in MB | grown |")
    print("|---|---|---|---|---|---|---|")
    for life in run.lives.outlived():
        print(life.row())
    return 1 if harm or late else 0


def main() -> int:
    """Run one part."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("part", choices=[*PARTS, "states"])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--tcp", action="store_true", help="UCX_TLS=tcp")
    parser.add_argument("--schedule", choices=("normal", "overlap"), default="overlap")
    parser.add_argument("--tp", type=int, default=1, help="ranks of either side")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size")
    given = parser.parse_args()
    if given.part == "states":
        return explore_states()
    print(f"part {given.part}, seed {given.seed}, scale {given.scale:g}", flush=True)
    return play(given.part, given.seed, given.scale, Setting(given.tcp, given.schedule, given.tp))


if __name__ == "__main__":
    sys.exit(main())
