"""One look at an instance through whoever manages it, the same for all managers."""

from __future__ import annotations

import msgspec


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager knows of an instance now. Absent is unknown."""

    words: str
    """E.g. `running`, `exited with code 7`."""
    is_known: bool = True
    """False: the manager could not be asked."""
    is_running: bool = False
    """It has a process, well or not."""
    is_pending: bool = False
    """It has none, and its manager is about to start one or to see the last one's end."""
    pid: int | None = None
    run: str | None = None
    """Names the process for good, as a pid alone does not: `PID@START_TICKS`, or the unit's InvocationID."""
    started_at: float | None = None
    """Unix time."""
    restarts: int = 0
    """By the manager itself."""
    restart: str = "no"
    """The manager's restart policy, in its own word."""

    @property
    def is_down(self) -> bool:
        """Return whether nothing of it runs or is about to."""
        return self.is_known and not self.is_running and not self.is_pending
