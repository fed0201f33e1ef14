"""What collectors hand over: files for an incident directory, or why there is none."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec


class Status(StrEnum):
    """How taking one file ended; the words of capture.toml."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    DENIED = "denied"
    ABSENT = "absent"
    """There is no such thing here: no GPU, no such endpoint."""


class Mode(StrEnum):
    """How a stack dump was taken."""

    NONBLOCKING = "nonblocking"
    BLOCKING = "blocking"
    NATIVE = "native"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One file of one instance. `content` is None where nothing was got; `error` then says why and what to do."""

    name: str
    content: bytes | None = None
    status: Status = Status.OK
    error: str | None = None
    at: datetime = datetime.min
    """UTC, when its taking began."""
    took_ms: float | None = None
    mode: Mode | None = None
    pause_ms: float | None = None
    """How long the target stood still for it, measured from outside: an upper bound."""
    attached: int | None = None
    """Processes that a debugger interface was attached to."""
    truncated: bool | None = None
    covers_since: datetime | None = None
    """A log: every line since then is there."""


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)
