"""One judgement: what `pdctl diagnose` collects and says of a deployment that runs, held against what is the case."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pdctl.deployment.model import Deployment, Role
from pdctl.deployment.state import StateFolder
from pdctl.diagnose.verdict import Verdict
from pdctl.drill import provenance
from pdctl.load.background import BackgroundLoad
from pdctl.load.canaries import ScoredAnswers
from pdctl.load.wire import Endpoint
from pdctl.recover.live import Live
from tests.judgements.systems import CLIENTS, SYSTEMS, Clients, System
from tests.waiting import eventually

SERVING_S = 120.0
QUIET = (Verdict.HEALTHY, Verdict.NOT_A_WEDGE)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a result file."""

    at: float
    """Unix time of its end."""
    code: str
    """Hash over the sources of engine and pdctl: judgements by other sources are other figures."""
    commit: str | None
    model: str
    system: str
    clients: str
    verdict: str
    firm: tuple[str, ...]
    """Codes of the causes that stand."""
    is_alarm: bool
    took_s: float
    load_average: float
    """Of the machine, over the minute before."""
    kept: str | None = None
    """Its evidence, of an alarm alone."""


def is_alarm(verdict: str, firm: Iterable[str], clients: Clients) -> bool:
    """Return whether a verdict or a cause would call somebody although nothing is wrong."""
    return verdict not in QUIET or not set(firm) <= set(clients.right)


def pending(done: Iterable[Judgement], code: str, count: int, most: int) -> Iterator[tuple[System, Clients, int]]:
    """Yield what is still to judge so that each of system x clients has its share of `count`, at most `most` in a row.

    Round by round, so that an early end has some of each.
    """
    had = [(item.system, item.clients) for item in done if item.code == code]
    cells = [(system, clients) for system in SYSTEMS for clients in CLIENTS]
    share = -(-count // len(cells))
    for low in range(0, share, most):
        for system, clients in cells:
            begun = max(low, had.count((system.name, clients.name)))
            missing = min(low + most, share) - begun
            if missing > 0:
                yield system, clients, missing


@contextmanager
def served(deployment: Deployment, clients: Clients) -> Iterator[None]:
    """Let the clients come through the router, and wait until one of them has been answered."""
    router = deployment.router
    assert router is not None
    if clients.profile is None:
        yield
        return
    canaries = ScoredAnswers(deployment.of_role(Role.PREFILL)[0])
    endpoint = Endpoint(url=router.url, model=deployment.model)
    with BackgroundLoad(endpoint, clients.profile, canaries) as load:
        eventually(lambda: load.figures().outcomes.get("ok", 0) > 0, SERVING_S)
        yield
    canaries.close()


def judged(folder: StateFolder, deployment: Deployment, system: System, clients: Clients) -> Judgement:
    """Do what `pdctl diagnose` does. Evidence of what is no alarm is deleted."""
    began = time.monotonic()
    live = Live(folder, deployment, say=lambda line: None)
    live.diagnose()
    live.complete()
    report, took_s = live.report, time.monotonic() - began
    firm = tuple(cause.code for cause in report.firm)
    wrong = is_alarm(report.verdict, firm, clients)
    if not wrong:
        shutil.rmtree(live.path)
    return Judgement(
        at=time.time(),
        code=provenance.sources_hash(),
        commit=provenance.commit(),
        model=deployment.model,
        system=system.name,
        clients=clients.name,
        verdict=report.verdict,
        firm=firm,
        is_alarm=wrong,
        took_s=round(took_s, 2),
        load_average=round(os.getloadavg()[0], 2),
        kept=str(live.path) if wrong else None,
    )


def folder_of(home: Path) -> tuple[StateFolder, Deployment]:
    """Return what `pdctl up` made in a home of its own."""
    folder = StateFolder(home / "state" / "pdctl", "default")
    deployment = folder.load()
    assert deployment is not None
    return folder, deployment


def upper_bound(alarms: int, judgements: int) -> float:
    """Return the highest rate at which so few alarms would still be seen in one of twenty such series."""
    low, high = alarms / judgements, 1.0
    while high - low > 1e-6:
        rate = (low + high) / 2
        is_likely = _at_most(alarms, judgements, rate) > 0.05
        low, high = (rate, high) if is_likely else (low, rate)
    return high


def _at_most(hits: int, trials: int, rate: float) -> float:
    """Return how likely so many hits or fewer are."""
    return sum(math.comb(trials, n) * rate**n * (1 - rate) ** (trials - n) for n in range(hits + 1))
