"""What is known of an instance under a shim: its state file, held against /proc."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from pdctl.managers import shim_process
from pdctl.managers.sight import Sight

NEWS_DEADLINE_S = 1.0
"""A shim needs a few ms; one that was stopped by a signal says nothing."""
POLL_S = 0.03


class Life(StrEnum):
    """What the state file and /proc together say of an instance."""

    NEVER = "never started"
    RUNNING = "running"
    UNSUPERVISED = "running without its shim"
    STOPPED = "stopped"
    EXITED = "exited"
    FAILED = "could not be started"
    ENDING = "ending"
    """The engine is gone, and its shim has not yet said how."""
    BACKING_OFF = "waiting to be restarted"
    VANISHED = "gone without a trace"
    """The state file says running, but there is no such process: its shim was killed too, or a reboot."""
    PID_REUSED = "gone, its pid belongs to another process"

    @property
    def has_process(self) -> bool:
        return self in (Life.RUNNING, Life.UNSUPERVISED)

    @property
    def is_supervised(self) -> bool:
        return self in (Life.RUNNING, Life.BACKING_OFF)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The state file, as the shim writes it."""

    instance: str
    argv: tuple[str, ...]
    boot_id: str
    shim_pid: int
    shim_start_ticks: int | None
    state: str
    pid: int | None = None
    start_ticks: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    restart: str = "no"
    restarts: int = 0
    stopped_on_purpose: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at an instance."""

    life: Life
    record: Record | None = None

    @property
    def pid(self) -> int | None:
        return self.record.pid if self.record and self.life.has_process else None

    def sight(self) -> Sight:
        """Return what every manager tells of an instance."""
        record = self.record
        has_process = self.life.has_process and record is not None
        return Sight(
            words=self.explanation(),
            is_running=has_process,
            is_pending=self.life in (Life.BACKING_OFF, Life.ENDING),
            pid=self.pid,
            run=f"{record.pid}@{record.start_ticks}" if record and has_process else None,
            started_at=record.started_at if record and has_process else None,
            restarts=record.restarts if record else 0,
            restart=record.restart if record else "no",
        )

    def explanation(self) -> str:
        """Say in words how it ended, e.g. `exited with code 7`."""
        record = self.record
        if record is None or self.life not in (Life.EXITED, Life.FAILED):
            return str(self.life)
        if self.life is Life.FAILED:
            return record.error or str(self.life)
        if record.signal is not None:
            return f"killed by {signal.Signals(record.signal).name}"
        return f"exited with code {record.exit_code}"


@dataclass(frozen=True, slots=True)
class Paths:
    """Files of one instance, in a folder that exists."""

    state: Path
    log: Path


def observe(paths: Paths) -> Observation:
    """Tell whether an instance lives; a pid counts only together with its start time and boot.

    Waits up to a second for a shim that is about to write down how its engine ended.
    """
    ends_at = time.monotonic() + NEWS_DEADLINE_S
    while (seen := _look(paths)).life is Life.ENDING and time.monotonic() < ends_at:
        time.sleep(POLL_S)
    return seen


def _look(paths: Paths) -> Observation:
    try:
        record = msgspec.json.decode(paths.state.read_bytes(), type=Record)
    except FileNotFoundError:
        return Observation(Life.NEVER)
    except msgspec.DecodeError:
        # Only a crash of the machine in mid-write or a stranger's edit leaves half a file.
        return Observation(Life.VANISHED)
    has_shim = is_same(record, record.shim_pid, record.shim_start_ticks)
    if is_same(record, record.pid, record.start_ticks):
        return Observation(Life.RUNNING if has_shim else Life.UNSUPERVISED, record)
    if record.stopped_on_purpose and not (has_shim and record.state == "stopping"):
        return Observation(Life.STOPPED, record)
    if record.state == "failed":
        return Observation(Life.FAILED, record)
    if record.state == "exited":
        is_coming_back = has_shim and record.restart == "on-failure" and record.exit_code != 0
        return Observation(Life.BACKING_OFF if is_coming_back else Life.EXITED, record)
    if has_shim:
        return Observation(Life.ENDING, record)
    is_reused = record.pid is not None and shim_process.start_ticks(record.pid) is not None
    return Observation(Life.PID_REUSED if is_reused else Life.VANISHED, record)


def is_same(record: Record, pid: int | None, ticks: int | None) -> bool:
    """Return whether this pid is still the process that the record means."""
    if pid is None or ticks is None or record.boot_id != shim_process.boot_id():
        return False
    return shim_process.start_ticks(pid) == ticks
