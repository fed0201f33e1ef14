"""What is done to the engines, and how each event is judged."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psutil

from tests.chaos.load import Case, Client, Tally
from tests.serving.rig import Pair, Process, until

RECOVERY_LIMIT_S = 5.0
"""From a restarted side's first 200, or SIGCONT, to a proven request, on a machine that does nothing else."""
PATIENCE_S = 30.0
"""How long a proven request is waited for, so that a run beside others ends with a figure."""


def side_of(sides: Pair, name: str) -> Process:
    return sides.prefill if name == "prefill" else sides.decode


def processes_of(side: Process) -> list[psutil.Process]:
    """Return an instance's processes: API, scheduler, data plane."""
    api = psutil.Process(side.pid)
    return [api, *api.children(recursive=True)]


@contextmanager
def stopped(side: Process) -> Iterator[None]:
    """SIGSTOP every process of an instance for as long as the block runs."""
    frozen = processes_of(side)
    for process in frozen:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in frozen:
            if process.is_running():
                os.kill(process.pid, signal.SIGCONT)


def proven_after(sides: Pair, case: Case, chance: random.Random) -> float:
    """Return the seconds until a request comes back right; raises NotInTime."""
    client, started = Client(sides, chance), time.monotonic()
    try:
        until(lambda: client.ask(case) == "right", PATIENCE_S, "a request that comes back right")
    finally:
        client.close()
    return time.monotonic() - started


def restart(sides: Pair, name: str, case: Case, chance: random.Random) -> float:
    """kill -9 of one side and a new start; return the seconds from its first 200 to a proven request."""
    side, other = side_of(sides, name), side_of(sides, "decode" if name == "prefill" else "prefill")
    untouched = other.get("/server_info")["incarnation"]
    side.kill()
    side.start().wait_ready("/health/live")
    until(lambda: side.get("/health")["status"] == "ok", 60, f"{name} healthy")
    took_s = proven_after(sides, case, chance)
    assert other.get("/server_info")["incarnation"] == untouched
    return took_s


def stop_and_continue(
    sides: Pair, name: str, seconds: float, case: Case, chance: random.Random, kills: bool = False
) -> float:
    """SIGSTOP of one side for a while, then SIGCONT (or kill -9); return the seconds to a proven request."""
    side = side_of(sides, name)
    with stopped(side):
        time.sleep(seconds)
        if kills:
            side.kill()
    if kills:
        side.start().wait_ready("/health/live")
        until(lambda: side.get("/health")["status"] == "ok", 60, f"{name} healthy")
    # The other side noticed a silence only after 5 s; a link that broke is dialled again after 1 s.
    return proven_after(sides, case, chance)


def abort_storm(sides: Pair, cases: list[Case], seed: int, aborts: int, at_once: int = 8) -> Tally:
    """Requests whose clients leave at random moments of their life."""
    tally = Tally()

    def one(number: int) -> None:
        chance = random.Random(seed * 100_000 + number)
        client = Client(sides, chance)
        tally.add(client.ask(chance.choice(cases), leaves_after_s=chance.uniform(0.005, 0.4)))
        client.close()

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, range(aborts)))
    return tally


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a pair after chaos."""

    leaked: int
    """Pages that are neither free nor cached, both sides."""
    rooms: int
    restarts: int
    """Crashes of supervised threads."""
    rechecked: int
    changed: int


def frames_heard(side: Process) -> int:
    """Return how many frames, good and bad, a side has received."""
    return metric(side, 'control_frames_total{direction="in"') + metric(side, "control_bad_frames_total")


def metric(side: Process, name: str) -> int:
    """Return the sum of a metric's samples."""
    lines = httpx.get(side.url + "/metrics", timeout=10).text.splitlines()
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"pdengine_{name}")))


def judge(sides: Pair) -> Verdict:
    """Wait for both sides to come to rest (at most 15 s), then count."""
    with contextlib.suppress(AssertionError):
        until(sides.is_idle, 15, "idle")
    both = (sides.prefill, sides.decode)
    ledgers = [side.get("/ledger") for side in both]
    return Verdict(
        leaked=sum(ledger["total"] - ledger["free"] - ledger["cached"] for ledger in ledgers),
        rooms=sum(len(side.get("/rooms")["rooms"]) for side in both),
        restarts=sum(metric(side, "thread_restarts_total") for side in both),
        rechecked=metric(sides.decode, "prompts_rechecked_total"),
        changed=metric(sides.decode, "prompts_changed_total"),
    )
