"""The embedded manager as a recovery sees it: one shim an instance, on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pdctl.deployment.model import Instance
from pdctl.deployment.readiness import ShimProcesses
from pdctl.deployment.state import StateFolder
from pdctl.managers import shim, shim_process
from pdctl.managers.shim import Observation
from pdctl.managers.sight import Sight
from pdctl.recover import drift, preflight
from pdctl.recover.plan import Target

STOPPED_STATES = (b"T", b"t")
BIRTH_S = 1.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ShimManager:
    """The embedded manager."""

    folder: StateFolder
    _families: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Instance -> (pid, start ticks) of its whole session when it was asked to stop."""
    _logs_began_at: dict[str, int] = field(default_factory=dict)
    """Instance -> bytes of its log when it was started."""

    def look(self, name: str) -> Sight:
        """Return the state file held against /proc."""
        return shim.observe(self.folder.paths(name)).sight()

    def last_words(self, name: str) -> str:
        """Return the end of its log."""
        return ShimProcesses(self.folder, self._logs_began_at).last_words(name)

    def problems(self, instance: Instance) -> Iterable[str]:
        """Return what would keep it from starting again."""
        return preflight.problems_under_shim(self.folder, instance)

    def drift(self, instance: Instance) -> tuple[drift.Drift, ...]:
        """Compare flags, environment, code and weights."""
        return drift.drift_of(instance, shim.observe(self.folder.paths(instance.name)))

    def stopped_with(self, name: str) -> tuple[str, ...]:
        """Return nothing: each shim stops its own instance alone."""
        return ()

    def ask_to_stop(self, name: str) -> None:
        """Send SIGTERM, through the shim where it lives."""
        self._families[name] = _family(self.folder.paths(name))
        shim.ask_to_stop(self.folder.paths(name))

    def await_stopped(self, name: str, deadline_s: float) -> bool:
        """Wait, then kill the group, then whatever else of its session is left (a helper with a group of its own)."""
        paths = self.folder.paths(name)
        # A process that was stopped by a signal cannot act on SIGTERM: waiting would only cost time.
        is_frozen = self._is_frozen(paths)
        was_killed = shim.await_stopped(paths, 0.0 if is_frozen else deadline_s)
        return _killed(self._families.get(name, ())) or was_killed

    def start(self, target: Target) -> Sight:
        """Start it under a shim, unless a shim that an earlier executor started is just about to."""
        paths = self.folder.paths(target.name)
        if (seen := _being_born(paths)) is not None:
            return seen.sight()
        instance = target.instance
        assert instance.start is not None, "preflight refuses what has no start command"
        self._logs_began_at[target.name] = paths.log.stat().st_size if paths.log.exists() else 0
        seen = shim.start(
            target.name, instance.start, instance.env, paths, cwd=self.folder.folder, restart=target.restart
        )
        return seen.sight()

    def _is_frozen(self, paths: shim.Paths) -> bool:
        seen = shim.observe(paths)
        return seen.pid is not None and _state_of(seen.pid) in STOPPED_STATES


def _being_born(paths: shim.Paths) -> Observation | None:
    """Return the instance of a shim that lives for this state file; an executor may have died just after the spawn."""
    spec = str(paths.state.with_suffix(".spec"))
    ends_at = time.monotonic() + BIRTH_S
    while _has_shim(spec):
        seen = shim.observe(paths)
        if seen.life.has_process:
            return seen
        if time.monotonic() >= ends_at:
            return None
        time.sleep(POLL_S)
    return None


def _has_shim(spec: str) -> bool:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                if os.fsencode(spec) in words and any(word.endswith(b"shim_process.py") for word in words):
                    return True
    return False


def _state_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    return b""


def _family(paths: shim.Paths) -> tuple[tuple[int, int], ...]:
    """Return the members of the engine's session but for its shim, by pid and start ticks.

    Only while shim or engine lives: afterwards the session's number could already be another's.
    """
    seen = shim.observe(paths)
    if seen.record is None or not (seen.life.has_process or seen.life.is_supervised):
        return ()
    leader = seen.record.shim_pid
    members = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != leader:
            with contextlib.suppress(OSError):
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == leader:
                    members.append((int(entry.name), int(fields[19])))
    return tuple(members)


def _killed(family: tuple[tuple[int, int], ...]) -> bool:
    """Kill those of a family that still live; return whether there were any."""
    left = [pid for pid, ticks in family if shim_process.start_ticks(pid) == ticks]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(left)
