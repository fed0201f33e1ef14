"""The embedded manager: starts an instance under a shim of its own, sees what became of it, and stops it.

Everything is read from the state file and from /proc, so any later pdctl can take over from this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from pdctl.errors import PdctlError
from pdctl.managers import shim_process

LOG_MAX_BYTES = 64 << 20
LOG_KEEP = 2
STOP_DEADLINE_S = 35.0
"""Above the engine's own drain timeout (30 s), so that streams may finish."""
SPAWN_DEADLINE_S = 10.0
AFTER_KILL_S = 3.0
POLL_S = 0.03


class Life(StrEnum):
    """What the state file and /proc together say of an instance."""

    NEVER = "never started"
    RUNNING = "running"
    UNSUPERVISED = "running without its shim"
    STOPPED = "stopped"
    EXITED = "exited"
    FAILED = "could not be started"
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
    """Tell whether an instance lives; a pid counts only together with its start time and boot."""
    try:
        record = msgspec.json.decode(paths.state.read_bytes(), type=Record)
    except FileNotFoundError:
        return Observation(Life.NEVER)
    except msgspec.DecodeError:
        # Only a crash of the machine in mid-write or a stranger's edit leaves half a file.
        return Observation(Life.VANISHED)
    has_shim = _is_same(record, record.shim_pid, record.shim_start_ticks)
    if _is_same(record, record.pid, record.start_ticks):
        return Observation(Life.RUNNING if has_shim else Life.UNSUPERVISED, record)
    if record.stopped_on_purpose:
        return Observation(Life.STOPPED, record)
    if record.state == "failed":
        return Observation(Life.FAILED, record)
    if record.state == "exited":
        is_coming_back = has_shim and record.restart == "on-failure" and record.exit_code != 0
        return Observation(Life.BACKING_OFF if is_coming_back else Life.EXITED, record)
    is_reused = record.pid is not None and shim_process.start_ticks(record.pid) is not None
    return Observation(Life.PID_REUSED if is_reused else Life.VANISHED, record)


def start(
    instance: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    paths: Paths,
    *,
    cwd: Path,
    restart: str = "no",
    stop_deadline_s: float = STOP_DEADLINE_S,
    log_max_bytes: int = LOG_MAX_BYTES,
) -> Observation:
    """Start an instance that does not run, and return once its process exists (about 50 ms).

    It outlives this process. `restart` is `no` or `on-failure` (with back-off). Raises PdctlError if it
    cannot be started at all.
    """
    spec = {
        "instance": instance,
        "argv": list(argv),
        "log": str(paths.log),
        "state": str(paths.state),
        "cwd": str(cwd),
        "restart": restart,
        "stop_deadline_s": stop_deadline_s,
        "log_max_bytes": log_max_bytes,
        "log_keep": LOG_KEEP,
    }
    spec_file = paths.state.with_suffix(".spec")
    paths.state.unlink(missing_ok=True)
    try:
        spec_file.write_text(json.dumps(spec))
        shim_pid = _spawn_shim(spec_file, paths.log, dict(os.environ) | dict(env))
    except OSError as error:
        raise PdctlError(
            f"cannot start {instance}: {error.strerror} ({spec_file})",
            "make room, or make the folder writable",
        ) from error
    return _first_sight(instance, shim_pid, paths)


def ask_to_stop(paths: Paths) -> None:
    """Send SIGTERM, through the shim where it lives, else to the process group; a dead instance is fine."""
    seen = observe(paths)
    if seen.record is None:
        return
    if seen.life.is_supervised:
        _signal_shim(seen.record, signal.SIGTERM)
    elif leftovers(paths):
        _mark_stopped(paths, seen.record)
        _signal_group(seen.record, signal.SIGTERM)


def await_stopped(paths: Paths, deadline_s: float) -> bool:
    """Wait until nothing of the instance is left; past the deadline kill its process group, then its shim.

    Returns whether it had to be killed. Raises PdctlError naming what survives SIGKILL (a process that hangs
    in the kernel, state D): nothing should be started beside it.
    """
    if _are_gone_within(paths, deadline_s):
        return False
    record = observe(paths).record
    assert record is not None, "what has no record leaves nothing behind"
    for kill in (_signal_group, _signal_shim):
        kill(record, signal.SIGKILL)
        if _are_gone_within(paths, AFTER_KILL_S):
            return True
    raise PdctlError(
        f"processes {', '.join(map(str, leftovers(paths)))} of {record.instance} survive SIGKILL",
        "they hang in the kernel: see `cat /proc/PID/stack`; this machine may need a reboot",
    )


def leftovers(paths: Paths) -> list[int]:
    """Return the pids of shim, engine and the engine's group that still exist."""
    record = observe(paths).record
    if record is None or record.boot_id != shim_process.boot_id():
        return []
    pids = [record.shim_pid] if _is_same(record, record.shim_pid, record.shim_start_ticks) else []
    return pids + _group_members(record)


def _spawn_shim(spec_file: Path, log: Path, env: dict[str, str]) -> int:
    """Start the shim in a session of its own: no terminal's hang-up or Ctrl-C reaches it."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", str(Path(shim_process.__file__).resolve()), str(spec_file)],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _are_gone_within(paths: Paths, deadline_s: float) -> bool:
    ends_at = time.monotonic() + deadline_s
    while leftovers(paths):
        if time.monotonic() >= ends_at:
            return False
        time.sleep(POLL_S)
    return True


def _first_sight(instance: str, shim_pid: int, paths: Paths) -> Observation:
    ends_at = time.monotonic() + SPAWN_DEADLINE_S
    while time.monotonic() < ends_at:
        seen = observe(paths)
        if seen.life is Life.FAILED:
            raise PdctlError(f"cannot start {instance}: {seen.explanation()}", f"see {paths.log}")
        if seen.record is not None:
            return seen
        if shim_process.start_ticks(shim_pid) is None:
            raise PdctlError(f"the shim of {instance} died at once", f"see {paths.log}")
        time.sleep(POLL_S)
    raise PdctlError(f"the shim of {instance} did not report within {SPAWN_DEADLINE_S:.0f} s", f"see {paths.log}")


def _is_same(record: Record, pid: int | None, ticks: int | None) -> bool:
    """Return whether this pid is still the process that the record means."""
    if pid is None or ticks is None or record.boot_id != shim_process.boot_id():
        return False
    return shim_process.start_ticks(pid) == ticks


def _signal_shim(record: Record, number: signal.Signals) -> None:
    """Signal the shim by a descriptor taken before its identity is checked: nobody else can get it."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(record.shim_pid)
        try:
            if _is_same(record, record.shim_pid, record.shim_start_ticks):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _signal_group(record: Record, number: signal.Signals) -> None:
    """Signal the engine's process group, if it is still that group."""
    if record.pid is not None and _group_members(record):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(record.pid, number)


def _group_members(record: Record) -> list[int]:
    """Return the living members of the engine's group: group id = engine, session = its shim."""
    if record.pid is None:
        return []
    members = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
            is_dead = fields[0] in (b"Z", b"X")
            if not is_dead and (int(fields[2]), int(fields[3])) == (record.pid, record.shim_pid):
                members.append(int(entry.name))
    return members


def _mark_stopped(paths: Paths, record: Record) -> None:
    """Note on the dead shim's behalf that the stop is meant."""
    draft = paths.state.with_suffix(".mark")
    draft.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, stopped_on_purpose=True)))
    draft.replace(paths.state)
