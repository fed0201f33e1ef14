"""Ends an instance whose loop hangs (invariant 6): a collective or a forward pass cannot be cancelled."""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
EXIT_CODE = 70


class StuckClock:
    """Counts its own beats while the loop does not move.

    Beats, not seconds: a process that was stopped (SIGSTOP) and continued has lost seconds, but no beats.
    """

    def __init__(self, floor_s: float) -> None:
        self._floor_s = floor_s
        self._seen = -1
        self._beats = 0

    def beat(self, turns: int, longest_step_s: float) -> bool:
        """Return whether the loop, at `turns`, has been unmoved for max(floor, 10 x the longest step)."""
        if turns != self._seen:
            self._seen = turns
            self._beats = 0
            return False
        self._beats += 1
        return self._beats * INTERVAL_S >= max(self._floor_s, 10 * longest_step_s)


def watch(stopping: threading.Event, stuck: Callable[[], bool]) -> None:
    """Beat until stopped; when stuck, write all stacks to stderr and end the process with 70."""
    while not stopping.wait(INTERVAL_S):
        if stuck():
            log.critical("the loop has not moved for the length of the stuck clock; stacks follow")
            faulthandler.dump_traceback(all_threads=True)
            os._exit(EXIT_CODE)
