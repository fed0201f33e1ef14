"""Computes steps in a thread of its own, so that the loop works on results and plans meanwhile.

torch gives up the interpreter's lock during its operations. Plans are computed in the order in which they come; with
`--schedule overlap` the next one waits in the queue already when a step ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

import torch

from engine.scheduler.runner import StepResult
from engine.scheduler.step_plan import StepPlan
from engine.transfer.inbox import Inbox

CLOSE_TIMEOUT_S = 5.0
"""How long a drained instance waits for the last step."""


class Executor(Protocol):
    """The seam between the loop and the ranks."""

    def submit(self, plan: StepPlan) -> None:
        """Compute a plan after those that were submitted before; returns at once."""

    def take(self) -> list[StepResult]:
        """Return the results since the last call, in order. Raises what a step has raised."""


class StepThread:
    """The thread of a rank that computes, each plan by `run_step`."""

    def __init__(self, run_step: Callable[[StepPlan], StepResult], threads: int) -> None:
        self._run_step = run_step
        self._torch_threads = threads
        self._plans: SimpleQueue[StepPlan | None] = SimpleQueue()
        self._results: Inbox[StepResult | Exception] = Inbox()
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)

    def fileno(self) -> int:
        """Return a descriptor that is readable while results wait, for the loop's poller."""
        return self._results.fileno()

    def start(self) -> None:
        """Start computing."""
        self._thread.start()

    def submit(self, plan: StepPlan) -> None:
        """Queue a plan; see `Executor`."""
        self._plans.put(plan)

    def take(self) -> list[StepResult]:
        """Return the results since the last call; see `Executor`."""
        results = []
        for item in self._results.take_all():
            if isinstance(item, Exception):
                raise item
            results.append(item)
        return results

    def close(self) -> bool:
        """End the thread after what was submitted, waiting up to 5 s; return whether it has ended."""
        self._plans.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # Both are settings of a thread.
        torch.set_num_threads(self._torch_threads)
        torch.set_grad_enabled(False)
        while (plan := self._plans.get()) is not None:
            try:
                self._results.put(self._run_step(plan))
            except Exception as error:
                # The loop raises it, and the instance ends; every later plan builds on this one.
                self._results.put(error)
                return
