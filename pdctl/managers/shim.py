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
from pathlib import Path

import msgspec

from pdctl.errors import PdctlError
from pdctl.managers import shim_process
from pdctl.managers.shim_record import POLL_S, Life, Observation, Paths, Record, is_same, observe
from pdctl.managers.unkillable import Unkillable

__all__ = [
    "STOP_DEADLINE_S",
    "Life",
    "Observation",
    "Paths",
    "Record",
    "ask_to_stop",
    "await_stopped",
    "leftovers",
    "observe",
    "start",
]

LOG_MAX_BYTES = 64 << 20
LOG_KEEP = 2
STOP_DEADLINE_S = 35.0
"""Above the engine's own drain timeout (30 s), so that streams may finish."""
SPAWN_DEADLINE_S = 10.0
AFTER_KILL_S = 3.0


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

    Returns whether it had to be killed. Raises Unkillable naming what survives SIGKILL (a process that hangs
    in the kernel, state D).
    """
    if _are_gone_within(paths, deadline_s):
        return False
    record = observe(paths).record
    assert record is not None, "what has no record leaves nothing behind"
    for kill in (_signal_group, _signal_shim):
        kill(record, signal.SIGKILL)
        if _are_gone_within(paths, AFTER_KILL_S):
            return True
    raise Unkillable(
        f"processes {', '.join(map(str, leftovers(paths)))} of {record.instance} survive SIGKILL",
        "they hang in the kernel: see `cat /proc/PID/stack`; this machine may need a reboot",
    )


def leftovers(paths: Paths) -> list[int]:
    """Return the pids of shim, engine and the engine's group that still exist."""
    record = observe(paths).record
    if record is None or record.boot_id != shim_process.boot_id():
        return []
    pids = [record.shim_pid] if is_same(record, record.shim_pid, record.shim_start_ticks) else []
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


def _signal_shim(record: Record, number: signal.Signals) -> None:
    """Signal the shim by a descriptor taken before its identity is checked: nobody else can get it."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(record.shim_pid)
        try:
            if is_same(record, record.shim_pid, record.shim_start_ticks):
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
