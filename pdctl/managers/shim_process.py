"""The process that starts one engine, watches it and stops it: `python -I -S shim_process.py SPEC.json`.

Only the standard library, and no import of pdctl: it lives as long as the engine (10 MB), and an upgrade of
pdctl must not touch it. The engine writes straight to its log file, never to a pipe, so that it outlives this
process; whoever comes later finds it by pid and start time in the state file.

    starting ──spawn──> running ──exit──> exited
       │                  │  └─SIGTERM──> stopping ──exit──> exited (stopped_on_purpose)
       └─cannot spawn──> failed
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

TICK_S = 1.0
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 30.0
COPY_BYTES = 1 << 20
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is gone or a zombie.

    With the pid it names a process for good: pids are reused, pairs are not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command in parentheses may hold spaces and parentheses itself.
    fields = stat.rpartition(b")")[2].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    """Return the kernel's id of this boot: ticks of another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class _Signals:
    """Signals as data, so that none interrupts a state write.

    Not sigtimedwait: stopped and continued past its timeout (Ctrl-Z, a debugger), CPython 3.11 returns a signal
    number that it never received.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # Whoever started us may have held signals back, and a blocked mask is inherited.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in numbers:
            # A handler must exist for the number to be written to the pipe.
            signal.signal(number, lambda *_: None)

    def wait(self, timeout_s: float) -> set[int]:
        """Return the signals that have come; empty after `timeout_s` without one."""
        select.select([self._reader], [], [], timeout_s)
        try:
            return set(os.read(self._reader, 4096))
        except BlockingIOError:
            return set()


class Shim:
    """Owner of one engine process and of its log and state files."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._log = Path(spec["log"])
        self._pid = 0
        self._stop_asked_at: float | None = None
        self._state: dict[str, Any] = {
            "instance": spec["instance"],
            "argv": spec["argv"],
            "boot_id": boot_id(),
            "shim_pid": os.getpid(),
            "shim_start_ticks": start_ticks(os.getpid()),
            "restart": spec["restart"],
            "restarts": 0,
            "stopped_on_purpose": False,
        }

    def run(self) -> int:
        """Start the engine and stay until it has ended for good; return 0 unless it could not be started."""
        signals = _Signals(signal.SIGCHLD, *STOP_SIGNALS)
        os.chdir(self._spec["cwd"])
        if not self._spawn():
            return 1
        backoff_s = FIRST_BACKOFF_S
        while True:
            self._watch(signals)
            if self._stop_asked_at is not None or self._spec["restart"] != "on-failure":
                return 0
            if not self._state.get("exit_code") and self._state.get("signal") is None:
                return 0
            if self._is_stopped_while_backing_off(signals, backoff_s):
                return 0
            backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
            self._state["restarts"] += 1
            if not self._spawn():
                return 1

    def _spawn(self) -> bool:
        """Start the engine in a process group of its own, with the log file as stdout and stderr."""
        argv = self._spec["argv"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        log = (os.POSIX_SPAWN_OPEN, 1, str(self._log), flags, 0o600)
        try:
            self._pid = os.posix_spawnp(
                argv[0],
                argv,
                os.environ,
                file_actions=[null, log, (os.POSIX_SPAWN_DUP2, 1, 2)],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT],
            )
        except OSError as error:
            self._write_state(state="failed", error=f"cannot start {argv[0]}: {error.strerror}")
            return False
        self._write_state(
            state="running",
            pid=self._pid,
            start_ticks=start_ticks(self._pid),
            started_at=time.time(),
            ended_at=None,
            exit_code=None,
            signal=None,
        )
        return True

    def _is_stopped_while_backing_off(self, signals: _Signals, backoff_s: float) -> bool:
        ends_at = time.monotonic() + backoff_s
        while (left_s := ends_at - time.monotonic()) > 0:
            if signals.wait(left_s) & STOP_SIGNALS:
                self._write_state(stopped_on_purpose=True)
                return True
        return False

    def _watch(self, signals: _Signals) -> None:
        """Pass signals on, rotate the log and enforce the deadline until the engine has exited."""
        while True:
            if signals.wait(TICK_S) & STOP_SIGNALS:
                self._ask_to_stop()
            if os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self._reap()
                return
            self._enforce_deadline()
            self._rotate_log()

    def _ask_to_stop(self) -> None:
        if self._stop_asked_at is None:
            self._stop_asked_at = time.monotonic()
            self._write_state(state="stopping", stopped_on_purpose=True)
        self._signal_group(signal.SIGTERM)

    def _enforce_deadline(self) -> None:
        if self._stop_asked_at is None:
            return
        if time.monotonic() - self._stop_asked_at >= self._spec["stop_deadline_s"]:
            self._signal_group(signal.SIGKILL)

    def _reap(self) -> None:
        # What the engine left in its group (a rank, a helper) must not outlive it. Kill before reaping: the
        # zombie keeps the group's id from being reused.
        self._signal_group(signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._write_state(
            state="exited",
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            ended_at=time.time(),
        )

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)

    def _write_state(self, **changes: Any) -> None:
        """Replace the state file in one step. A full disk costs the news, not the engine."""
        self._state |= changes
        path = Path(self._spec["state"])
        draft = path.with_name(path.name + ".tmp")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(self._state))
            draft.replace(path)

    def _rotate_log(self) -> None:
        """Copy a full log aside and truncate it: the engine keeps its descriptor, so no rename will do.

        Lines written between the two (a few ms) are lost.
        """
        with contextlib.suppress(OSError):
            if self._log.stat().st_size < self._spec["log_max_bytes"]:
                return
            draft = self._log.with_name(self._log.name + ".tmp")
            try:
                _copy(self._log, draft)
            except OSError as error:
                draft.unlink(missing_ok=True)
                if error.errno == errno.ENOSPC:
                    # No room to keep the old lines: give it back rather than fill the disk to the end.
                    os.truncate(self._log, 0)
                return
            os.truncate(self._log, 0)
            # Named last: who follows the log and sees a new `.1` may count on an emptied log.
            for index in range(self._spec["log_keep"] - 1, 0, -1):
                older = self._log.with_name(f"{self._log.name}.{index}")
                if older.exists():
                    older.replace(self._log.with_name(f"{self._log.name}.{index + 1}"))
            draft.replace(self._log.with_name(f"{self._log.name}.1"))


def _copy(source: Path, target: Path) -> None:
    # Not shutil: its import doubles the start-up time of this process.
    with source.open("rb") as reader, target.open("wb") as writer:
        while block := reader.read(COPY_BYTES):
            writer.write(block)


if __name__ == "__main__":
    sys.exit(Shim(json.loads(Path(sys.argv[1]).read_text())).run())
