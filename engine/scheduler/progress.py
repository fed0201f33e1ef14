"""Where the loop is: written by the loop and its watchdog, read by the observer and the heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from engine.observe.watchdog import StuckClock


@dataclass(slots=True)
class Progress:
    """Plain fields, each written by the loop only, but for `longest_turn_s`."""

    turns: int = 0
    last_turn: float = 0.0
    """Monotonic seconds."""
    steps: int = 0
    step_seconds: float = 0.0
    longest_step_s: float = 0.0
    """As a clock on the wall has it, with all the time in which the process was stopped."""
    longest_turn_s: float = 0.0
    """As the watchdog has it, of the time in which the process ran: what every stuck clock goes by."""

    def turn(self, now: float) -> None:
        """The loop has come round."""
        self.turns += 1
        self.last_turn = now

    def step(self, seconds: float) -> None:
        """A step has been computed."""
        self.steps += 1
        self.step_seconds += seconds
        self.longest_step_s = max(self.longest_step_s, seconds)

    def is_stuck(self, clock: StuckClock) -> bool:
        """Let the watchdog's clock beat; return whether it has run out."""
        is_stuck = clock.beat(self.turns)
        self.longest_turn_s = clock.longest_s
        return is_stuck
