"""A load that runs beside what else a process does, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from pdctl.load.canaries import Canaries
from pdctl.load.generator import Generator
from pdctl.load.profile import Profile
from pdctl.load.tally import Figures
from pdctl.load.wire import Endpoint

T = TypeVar("T")
POLL_S = 0.2


class BackgroundLoad:
    """Runs from `with` to its end, at most `duration_s`. Safe to ask from any thread."""

    def __init__(
        self, endpoint: Endpoint, profile: Profile, canaries: Canaries, duration_s: float | None = None
    ) -> None:
        self._made = (endpoint, profile, canaries)
        self._duration_s = duration_s
        self._loop = asyncio.new_event_loop()
        self._generator: Generator | None = None
        self._is_made = threading.Event()
        # Not `Thread.is_alive`: a Ctrl-C within `join` makes it lie (CPython 3.11).
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_made.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it has ended by itself; return whether it has."""
        return self._has_ended.wait(seconds)

    def figures(self) -> Figures:
        """Return what became of it so far; after the end, all of it."""
        return self._called(lambda generator: generator.figures())

    def drop_all(self) -> int:
        """Close every connection at once; return how many there were."""
        return self._called(lambda generator: generator.drop_all())

    def stop(self) -> Figures:
        """End it, and return what became of it. May be called again."""
        self._called(lambda generator: generator.stop())
        self._has_ended.wait()
        return self.figures()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._has_ended.set()
            self._loop.close()

    async def _main(self) -> None:
        self._generator = Generator(*self._made)
        self._is_made.set()
        await self._generator.run(self._duration_s)

    def _called(self, act: Callable[[Generator], T]) -> T:
        assert self._generator is not None, "entered before it is asked"
        generator = self._generator

        async def call() -> T:
            return act(generator)

        if self._has_ended.is_set():
            return act(generator)
        with contextlib.suppress(RuntimeError):  # its loop is closed
            answer = asyncio.run_coroutine_threadsafe(call(), self._loop)
            while not self._has_ended.is_set():
                with contextlib.suppress(TimeoutError):
                    return answer.result(POLL_S)
        return act(generator)
