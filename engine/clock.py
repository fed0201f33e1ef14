"""Time as an object, so that tests need no sleep."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """`monotonic` for intervals, `wall` for stamps that leave the process; both in seconds."""

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
