"""Two operators never both act: one of them holds the lock, the other is told who."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused
from pdctl.recover.ledger import operator


@contextmanager
def sole_operator(folder: StateFolder) -> Iterator[None]:
    """Be the only one who recovers this deployment. Raises Refused, at once, naming who does.

    The kernel drops the lock when its holder dies, so a stale one cannot exist.
    """
    folder.create()
    descriptor = os.open(folder.folder / "recovery.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 300, 0).decode("utf-8", "replace").strip() or "another pdctl"
            raise Refused(
                f"{holder} is recovering {folder.name!r}; nothing was changed",
                f"pdctl history --name {folder.name}   shows how far it is",
            ) from None
        os.ftruncate(descriptor, 0)
        since = time.strftime("%H:%M:%S")
        os.pwrite(descriptor, f"{operator()} (since {since})".encode(), 0)
        yield
    finally:
        os.close(descriptor)
