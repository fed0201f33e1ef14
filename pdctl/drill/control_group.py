"""Control groups (v1 and v2) that limit memory or processor time, as a container does."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from pdctl.errors import PdctlError

ROOT = Path("/sys/fs/cgroup")
FORKS = 20
"""How often it is tried again because a process was born in the group meanwhile."""
PERIOD_US = 100_000
"""The kernel's own default: who has used up its share waits for the next period."""


class ControlGroup:
    """A group of processes that may use so much and no more. Remove it when no process of it lives."""

    def __init__(self, name: str, controller: str, v1: Mapping[str, int], v2: Mapping[str, str], root: Path) -> None:
        """Make the group and write its limits. Raises PdctlError where this user or this machine may not."""
        hierarchy = root / controller
        is_v1 = hierarchy.is_dir()
        self._group = (hierarchy if is_v1 else root) / name
        self._parent = self._group.parent
        try:
            self._group.mkdir(exist_ok=True)
            for key, value in (v1 if is_v1 else v2).items():
                (self._group / key).write_text(str(value))
        except OSError as error:
            with contextlib.suppress(PdctlError):
                self.remove()
            raise PdctlError(
                f"cannot limit {controller} by {self._group}: {error.strerror}",
                "this drill needs root and a control group that may be written; the others do not",
            ) from error

    @classmethod
    def of_memory(cls, name: str, limit_bytes: int, root: Path = ROOT) -> Self:
        """Make a group of which the kernel kills what takes more. Raises PdctlError."""
        return cls(name, "memory", {"memory.limit_in_bytes": limit_bytes}, {"memory.max": str(limit_bytes)}, root)

    @classmethod
    def of_cpu(cls, name: str, cores: float, root: Path = ROOT) -> Self:
        """Make a group that gets so much processor time and no more. Raises PdctlError."""
        quota_us = round(cores * PERIOD_US)
        v1 = {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota_us}
        return cls(name, "cpu", v1, {"cpu.max": f"{quota_us} {PERIOD_US}"}, root)

    def take(self, pids: Iterable[int]) -> None:
        """Move processes into the group; those that are gone are left out. Their children will be born in it."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (self._group / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Move whoever is left back, and remove the group; harmless when repeated. Raises PdctlError."""
        for forks in range(FORKS):
            try:
                self._empty()
                self._group.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EBUSY or forks == FORKS - 1:
                    raise PdctlError(f"cannot remove {self._group}: {error.strerror}", "rmdir it by hand") from error

    def _empty(self) -> None:
        for pid in (self._group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                (self._parent / "cgroup.procs").write_text(pid)


def name_of(deployment: str) -> str:
    """Return a group's name that two users or two drills at once do not share."""
    return f"pdctl-{deployment}-{os.getpid()}"
