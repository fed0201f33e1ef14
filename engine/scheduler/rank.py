"""One rank's way with a plan: note it in the flight recorder, compute it, take the time."""

from __future__ import annotations

from engine.clock import Clock
from engine.observe.flight import FlightRecorder
from engine.scheduler.runner import Runner, StepResult
from engine.scheduler.step_plan import StepPlan


class Rank:
    """Used by the thread that computes."""

    def __init__(self, runner: Runner, clock: Clock, flight: FlightRecorder | None) -> None:
        self.runner = runner
        self._clock = clock
        self._flight = flight

    def compute_plan(self, plan: StepPlan) -> StepResult:
        """Compute a plan whose tokens are all known; blocks for the step's duration."""
        sequences = len(plan.sequences)
        if self._flight is not None:
            self._flight.step_begins(plan.number, sequences, plan.tokens)
        started = self._clock.monotonic()
        result = self.runner.step(plan)
        result.seconds = self._clock.monotonic() - started
        if self._flight is not None:
            self._flight.step_ends(plan.number, sequences, result.seconds)
        return result
