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
LAST_WORDS_S = 2.0


class StuckClock:
    """Counts its own beats while the loop does not move.

    Beats, not seconds: a process that was stopped (SIGSTOP) and continued has lost seconds, but no beats.
    """

    def __init__(self, floor_s: float) -> None:
        self.longest_s = 0.0
        """The longest that the loop has taken to move, in beats too: a stop of ten minutes must not allow hours."""
        self._floor_s = floor_s
        self._seen = -1
        self._beats = 0

    def beat(self, turns: int) -> bool:
        """Return whether the loop, at `turns`, has been unmoved for max(floor, 10 x the longest that it took)."""
        if turns != self._seen:
            self.longest_s = max(self.longest_s, self._beats * INTERVAL_S)
            self._seen = turns
            self._beats = 0
            return False
        self._beats += 1
        return self._beats * INTERVAL_S >= max(self._floor_s, 10 * self.longest_s)


def watch(stopping: threading.Event, stuck: Callable[[], bool]) -> None:
    """Beat until stopped; when stuck, write all stacks to stderr and end the process with 70."""
    while not stopping.wait(INTERVAL_S):
        if stuck():
            end_process_soon(EXIT_CODE)
            log.critical("the loop has not moved for the length of the stuck clock; stacks follow")
            faulthandler.dump_traceback(all_threads=True)
            os._exit(EXIT_CODE)


def end_process_soon(code: int) -> None:
    """End the process by itself in a moment: the last words may wait for ever, where nobody reads stderr any more."""
    last_resort = threading.Timer(LAST_WORDS_S, os._exit, (code,))
    last_resort.daemon = True
    last_resort.start()
