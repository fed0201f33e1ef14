"""What every collector is given beside its target, and the boundary where its faults become data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from pdctl.collect import records
from pdctl.collect.fetch import Fetcher
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.errors import PdctlError
from pdctl.hosts.host import Host, LocalHost

ATTACHED_AT_ONCE = 4
"""py-spy uses one core for 10 to 150 ms; more at once gain nothing and take the engines' cores."""
LOGS_AT_ONCE = 4
"""Each holds a few MB until it is cleaned of credentials and written."""
GET_S = 4.0
"""Above the 1 to 3 s of a busy engine, below anybody's patience."""
STOPPED_GET_S = 1.0
"""For one whose processes a signal holds: it answers nothing, but if it is let go on meanwhile, at once."""
FLEET_GET_S = 3.0
"""Of hundreds some hang, and each holds a place for so long."""
FLEET = 32
"""With more instances than this, scrapes are kept without what no analysis reads."""


class Deadline:
    """The end of the whole collection; whatever starts late gets what is left."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = clock() + timeout_s

    @property
    def left_s(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self._ends_at - self._clock())

    def at_most(self, wanted_s: float) -> float:
        """Return the seconds that something may take that would like `wanted_s`."""
        return min(wanted_s, self.left_s)


class Context(msgspec.Struct, kw_only=True):
    """Shared by the collectors of one run."""

    fetcher: Fetcher
    deadline: Deadline
    host: Host = msgspec.field(default_factory=LocalHost)
    """Where commands run."""
    is_fleet: bool = False
    prometheus: str | None = None
    """Where history is asked for, if anywhere."""
    get_timeout_s: float = GET_S
    """For one GET."""
    attach_slots: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(ATTACHED_AT_ONCE))
    log_slots: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(LOGS_AT_ONCE))


Take = Callable[[], Awaitable[Iterable[Taken]]]


async def guarded(target: Target, names: tuple[str, ...], limit_s: float, take: Take) -> list[Taken]:
    """Run one collector; whatever goes wrong becomes a record of each file it should have made."""
    at = records.now()
    started = time.monotonic()

    def all_of(status: Status, error: str) -> list[Taken]:
        took_ms = round((time.monotonic() - started) * 1000, 1)
        return [Taken(name=name, status=status, error=error, at=at, took_ms=took_ms) for name in names]

    try:
        async with asyncio.timeout(limit_s):
            return [msgspec.structs.replace(item, at=at) if item.at.tzinfo is None else item for item in await take()]
    except TimeoutError:
        return all_of(Status.TIMEOUT, f"not taken within {limit_s:.1f} s")
    except PdctlError as error:
        return all_of(Status.FAILED, f"{error.message}; {error.hint}" if error.hint else error.message)
    except Exception as error:  # The collector boundary: one that fails must not cost the others.
        return all_of(Status.FAILED, f"{type(error).__name__}: {error} (a fault of pdctl, {target.name})")
