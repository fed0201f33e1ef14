"""Where the loop is: written by the loop, read by the observer, the watchdog and the heartbeats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """Plain fields, each written by the loop only."""

    turns: int = 0
    last_turn: float = 0.0
    """Monotonic seconds."""
    steps: int = 0
    step_seconds: float = 0.0
    longest_step_s: float = 0.0

    def turn(self, now: float) -> None:
        """The loop has come round."""
        self.turns += 1
        self.last_turn = now

    def step(self, seconds: float) -> None:
        """A step has been computed."""
        self.steps += 1
        self.step_seconds += seconds
        self.longest_step_s = max(self.longest_step_s, seconds)
