"""Ask instances whether they are well and how long their queues are; bounded in time whatever they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pdctl.collect import http
from pdctl.collect.concurrency import all_of
from pdctl.collect.fetch import Buffer, Fetcher
from pdctl.collect.http import Outcome
from pdctl.deployment.model import Instance, Role
from pdctl.errors import PdctlError
from pdctl.hosts.hosts import Hosts

BODY_MOST_BYTES = 1 << 20


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """What we show of an engine's `/v1/loads`."""

    running: int = 0
    waiting: int = 0
    oldest_age_s: dict[str, float] = {}

    @property
    def oldest_s(self) -> float:
        """Return the age of the oldest request in any queue, 0 with none."""
        return max(self.oldest_age_s.values(), default=0.0)


class _HealthBody(msgspec.Struct, frozen=True, kw_only=True):
    problems: list[str] = []
    status: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one instance said; `problem` is None exactly when it is well."""

    problem: str | None
    took_ms: float
    loads: Loads | None = None

    @property
    def is_well(self) -> bool:
        return self.problem is None


def ask_all(
    instances: Iterable[Instance], timeout_s: float, *, with_loads: bool = True, hosts: Hosts | None = None
) -> dict[str, Answer]:
    """Ask all instances at once; takes at most `timeout_s` in all, even if they trickle or hang.

    `hosts` are those through which the loopback of another one is reached.
    """
    return asyncio.run(_ask_all(tuple(instances), timeout_s, with_loads, Fetcher(hosts)))


def health_path(instance: Instance) -> str:
    """Return the path whose 200 means that the instance can do its part.

    smg answers /health with 200 while it has no worker; its /readiness does not.
    """
    return "/readiness" if instance.role is Role.ROUTER and instance.dialect == "smg" else "/health"


async def _ask_all(
    instances: tuple[Instance, ...], timeout_s: float, with_loads: bool, fetcher: Fetcher
) -> dict[str, Answer]:
    answers = await all_of(_ask(fetcher, instance, timeout_s, with_loads) for instance in instances)
    return dict(zip((instance.name for instance in instances), answers, strict=True))


async def _ask(fetcher: Fetcher, instance: Instance, timeout_s: float, with_loads: bool) -> Answer:
    started = time.perf_counter()
    has_loads = with_loads and instance.dialect == "pdctl" and instance.role is not Role.ROUTER
    paths = (health_path(instance), "/v1/loads")[: 1 + has_loads]
    loads = None
    try:
        health, *more = await all_of(_get(fetcher, instance, path, timeout_s) for path in paths)
        problem = _problem(health, timeout_s)
        loads = _loads(more[0]) if more else None
    except PdctlError as error:
        problem = error.message
    return Answer(problem, 1000 * (time.perf_counter() - started), loads)


async def _get(fetcher: Fetcher, instance: Instance, path: str, timeout_s: float) -> http.Answer:
    return await fetcher.get(instance, path, deadline_s=timeout_s, sink=Buffer(BODY_MOST_BYTES))


def _loads(answer: http.Answer) -> Loads | None:
    try:
        return msgspec.json.decode(answer.body, type=Loads) if answer.ok else None
    except msgspec.DecodeError:
        return None


def _problem(health: http.Answer, timeout_s: float) -> str | None:
    """Return why an instance is not well, None if it is."""
    match health.outcome:
        case Outcome.ANSWERED | Outcome.TOO_LARGE:
            return None if health.status == 200 else _words(health)
        case Outcome.TIMEOUT:
            return f"no answer within {timeout_s:g} s"
        case Outcome.REFUSED:
            return "refused"
    return f"{health.outcome}: {health.error}" if health.error else str(health.outcome)


def _words(health: http.Answer) -> str:
    """Return what a health answer that is not 200 says, in the engine's own words where it has some."""
    try:
        said = msgspec.json.decode(health.body, type=_HealthBody)
        words = "; ".join(said.problems) or said.reason or said.status
    except msgspec.DecodeError:
        words = health.body[:80].decode(errors="replace").strip()
    return f"{health.status}: {words}" if words else str(health.status)
