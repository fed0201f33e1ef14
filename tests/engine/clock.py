"""A clock that moves when it is told to."""

from __future__ import annotations


class ManualClock:
    """Starts at 1000 s monotonic and 1,000,000 s wall; `advance` moves both."""

    def __init__(self) -> None:
        self._now = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    def monotonic(self) -> float:
        return 1000.0 + self._now

    def wall(self) -> float:
        return 1_000_000.0 + self._now
