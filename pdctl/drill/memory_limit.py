"""Memory limits of control groups (v1 and v2): the kernel kills what goes beyond, as it does in a container."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from pdctl.errors import PdctlError

ROOT = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A group of processes that may use so much and no more. Remove it when no process of it lives."""

    def __init__(self, name: str, limit_bytes: int, root: Path = ROOT) -> None:
        """Make the group. Raises PdctlError where this user or this machine may not."""
        v1 = root / "memory"
        self._group = (v1 if v1.is_dir() else root) / name
        self._parent = self._group.parent
        key = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
        try:
            self._group.mkdir(exist_ok=True)
            (self._group / key).write_text(str(limit_bytes))
        except OSError as error:
            self.remove()
            raise PdctlError(
                f"cannot limit memory by {self._group}: {error.strerror}",
                "this drill needs root and a control group that may be written; the others do not",
            ) from error

    def take(self, pids: Iterable[int]) -> None:
        """Move processes into the group; those that are gone are left out. Their children will be born in it."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (self._group / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Move whoever is left back, and remove the group; harmless when repeated."""
        with contextlib.suppress(FileNotFoundError):
            for pid in (self._group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (self._parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(FileNotFoundError):
            self._group.rmdir()


def name_of(deployment: str) -> str:
    """Return a group's name that two users or two drills at once do not share."""
    return f"pdctl-{deployment}-{os.getpid()}"
