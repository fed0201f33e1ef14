"""The private folder of one instance's ipc sockets.

It is removed at the end. An instance that was killed cannot do that, so the next one sweeps: a folder whose lock can be
taken has no owner any more (a lock, unlike a process id, also holds across containers that share /tmp).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "pdengine-"
LOCK = "lock"
YOUNG_S = 60.0
"""A folder without a lock that is younger than this may just be being made."""


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Make a folder (mode 0700) that lives as long as the context."""
    sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        with (folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def sweep(parent: Path) -> None:
    """Remove the folders in `parent` that killed instances of this user left behind; never fails."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and _is_abandoned(folder, status):
                shutil.rmtree(folder)


def _is_abandoned(folder: Path, status: os.stat_result) -> bool:
    try:
        lock = (folder / LOCK).open("r+")
    except FileNotFoundError:
        return time.time() - status.st_mtime > YOUNG_S
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
