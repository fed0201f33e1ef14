"""The process of a rank other than 0: receive a plan, compute it, report. It decides nothing."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from engine.clock import SystemClock
from engine.config import EngineConfig, Role
from engine.observe.threads import Supervisor
from engine.observe.watchdog import StuckClock, watch
from engine.scheduler.executor import StepThread
from engine.scheduler.progress import Progress
from engine.scheduler.rank import instance_ranks, load_rank
from engine.scheduler.rank_links import Context, Leave, Loaded, PlanSource, StepDone

if TYPE_CHECKING:
    from engine.transfer.data.rank_side import RankTransfer

log = logging.getLogger(__name__)

WAIT_MS = 100
"""Plans and results end the wait."""


class Follower:
    """Loads on construction; `serve` blocks until rank 0 says that the instance ends."""

    def __init__(self, config: EngineConfig, context: Context, run_dir: str, number: int) -> None:
        self._clock = SystemClock()
        self._progress = Progress(last_turn=self._clock.monotonic())
        self._stuck_clock = StuckClock(config.stuck_timeout_s)
        self._supervisor = Supervisor()
        self._rank = load_rank(config, number, run_dir, self._clock)
        self._steps = StepThread(self._rank.compute_plan, config.threads)
        self._plans = PlanSource(context, run_dir, number)
        self._plans.watch(self._steps.fileno())
        self._transfer = self._rank_transfer(config, run_dir)
        self._running = 0

    def serve(self) -> None:
        """Compute every plan in order. Raises what a step raises: the instance ends with any of its ranks."""
        self._steps.start()
        clock, progress = self._stuck_clock, self._progress
        stopping = self._supervisor.stopping
        self._supervisor.start("watchdog", lambda: watch(stopping, lambda: progress.is_stuck(clock)))
        if self._transfer is not None:
            self._transfer.start()
        self._plans.report(Loaded(os.getpid()))
        log.info("rank %d has its part of the model", self._rank.number)
        try:
            while self._turn():
                pass
        finally:
            self._steps.close()
            self._supervisor.stop()
            self._plans.close()

    def _rank_transfer(self, config: EngineConfig, run_dir: str) -> RankTransfer | None:
        if config.role is Role.UNIFIED:
            return None
        # Imported here: NIXL takes 0.2 s and 60 MB, and a unified instance has no use for it.
        from engine.transfer.data.rank_side import rank_transfer

        ranks = instance_ranks(config, self._rank.checkpoint.config, run_dir)
        return rank_transfer(config, self._rank.number, self._rank.pool, ranks, self._clock, self._supervisor)

    def _turn(self) -> bool:
        """Hand plans to the step thread and its results back; False when it is time to leave."""
        messages = self._plans.receive(WAIT_MS)
        for message in messages:
            if isinstance(message, Leave):
                return False
            self._running += 1
            self._steps.submit(message)
        results = self._steps.take()
        for result in results:
            self._running -= 1
            self._progress.step(result.seconds)
            self._plans.report(StepDone(result.number))
        if results or not self._running:
            # Beside a step that hangs nothing counts as progress.
            self._progress.turn(self._clock.monotonic())
        return True
