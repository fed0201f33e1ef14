"""Locks between pdctl processes: an flock on a file that says who holds it.

The kernel drops a lock when the last process that has its descriptor ends, so a stale one cannot exist.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pdctl.errors import PdctlError

_LONGEST_MARK = 300


@contextmanager
def held(path: Path, mark: str, on_busy: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock; yields its descriptor, which children do not inherit by themselves.

    Where somebody else holds it, `on_busy` is told that holder's mark (empty: unknown); it may raise, else the lock is
    waited for. A full disk costs the mark alone. Raises PdctlError where the file cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PdctlError(
            f"cannot make the lock {path}: {error.strerror}",
            "make room there, or set XDG_STATE_HOME to a folder that you may write",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_busy(os.pread(descriptor, _LONGEST_MARK, 0).decode("utf-8", "replace").strip())
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, mark.encode(), 0)
        yield descriptor
    finally:
        # Closing, not unlocking: an unlock would take the lock from a child that has the descriptor too.
        os.close(descriptor)
