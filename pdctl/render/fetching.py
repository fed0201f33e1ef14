"""Progress of a download on stderr: a bar on a terminal, a line each tenth elsewhere, nothing without one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from pdctl.render import console

UNKNOWN_STEP_BYTES = 10_000_000
"""A line each 10 MB where the size is not known."""


class ByteProgress(Protocol):
    def __call__(self, done: int, total: int | None, /) -> None: ...


@contextmanager
def display(what: str = "fetching the model") -> Iterator[ByteProgress]:
    """Show a download from its first block on."""
    if not sys.stderr.isatty():
        yield _Lines(what)
        return
    bar = _Bar(what)
    try:
        yield bar
    finally:
        bar.close()


class _Lines:
    def __init__(self, what: str) -> None:
        self._what = what
        self._last_step = -1

    def __call__(self, done: int, total: int | None, /) -> None:
        step = 10 * done // total if total else done // UNKNOWN_STEP_BYTES
        if step != self._last_step:
            self._last_step = step
            of_total = f" of {total / 1e6:.0f}" if total else ""
            console.tell(f"{self._what}: {done / 1e6:.0f}{of_total} MB")


class _Bar:
    """Draws only once something is fetched, so that a cached model costs no import of rich."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._close: Callable[[], None] = lambda: None
        self._update: ByteProgress = self._begin

    def __call__(self, done: int, total: int | None, /) -> None:
        self._update(done, total)

    def close(self) -> None:
        self._close()

    def _begin(self, done: int, total: int | None, /) -> None:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
        bar = progress.Progress(*columns, console=console.stderr_console())
        task = bar.add_task(self._what, total=total)
        bar.start()
        self._close = bar.stop
        self._update = lambda done, total: bar.update(task, completed=done, total=total)
        self._update(done, total)
