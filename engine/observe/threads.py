"""Threads that cannot die quietly (invariant 5): a crash is counted, logged, shown, and answered by a restart."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

log = logging.getLogger(__name__)

BACKOFF_S = (0.05, 0.2, 1.0, 5.0)


@dataclass(slots=True)
class Supervised:
    """State of one supervised thread, for `/health` and `/metrics`."""

    name: str
    alive: bool = False
    restarts: int = 0
    last_error: str | None = None
    thread: threading.Thread | None = field(default=None, repr=False)


class Supervisor:
    """Starts threads, restarts those that crash, and knows which are down.

    A body returns when `stopping` is set; any other return or exception is a crash.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.forsaken: set[str] = set()
        """Names of threads that stay dead when they crash; only a failpoint writes it."""
        self._threads: dict[str, Supervised] = {}

    def start(self, name: str, body: Callable[[], None]) -> None:
        """Run `body` in a thread of that name until `stop`."""
        state = self._threads[name] = Supervised(name)
        state.thread = threading.Thread(target=self._run, args=(state, body), name=name, daemon=True)
        state.thread.start()

    def states(self) -> list[Supervised]:
        """Return every thread's state, in the order of their start."""
        return list(self._threads.values())

    def down(self) -> list[str]:
        """Return the names of threads that are not running now."""
        return [s.name for s in self.states() if not s.alive]

    def problems(self, names: Collection[str]) -> list[str]:
        """Say of each of these threads that is down why it is."""
        return [
            f"thread {state.name} is down: {state.last_error}"
            for state in self.states()
            if state.name in names and not state.alive
        ]

    def stop(self, timeout_s: float = 2.0) -> None:
        """Ask all bodies to return and wait for each."""
        self.stopping.set()
        for state in self.states():
            if state.thread is not None and state.thread is not threading.current_thread():
                state.thread.join(timeout_s)

    def _run(self, state: Supervised, body: Callable[[], None]) -> None:
        while not self.stopping.is_set():
            state.alive = True
            try:
                body()
                state.last_error = "returned"
            except Exception as error:
                state.last_error = f"{type(error).__name__}: {error}"
                log.exception("thread %s crashed", state.name)
            state.alive = False
            if self.stopping.is_set() or state.name in self.forsaken:
                return
            state.restarts += 1
            self.stopping.wait(BACKOFF_S[min(state.restarts, len(BACKOFF_S)) - 1])
