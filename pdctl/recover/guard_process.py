"""What is left on another host before its first signal: it starts what was stopped, should pdctl be gone for too long.

`python3 -c PROGRAM NAME < PLAN`. Python 3.8 or later, only the standard library, no import of pdctl. It takes the
locks that pdctl itself takes there, writes the plan down, and stays behind in a session of its own. From then on it
reads the ledger of this host, to which pdctl adds each step before it is done, and the time of the last sign of life:

    armed ──silent, nothing stopped──> abandoned
      │ ───executed in the ledger───> gone
      └────silent after `stopping`──> waits for what still stops, kills it after `drain_s`, starts, notes it ──> gone

Exit codes: 0 armed, 75 somebody else works here (stdout names them), 1 it cannot.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TICK_S = 0.5
COMMAND_S = 20.0
AFTER_KILL_S = 5.0
"""A process with much pinned memory takes seconds to go."""
RUNS = ("active", "activating", "reloading", "refreshing")
BUSY = 75


def state_folder(name: str) -> Path:
    """Return where this host keeps the deployment's state, as pdctl itself finds it."""
    home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return base / "pdctl" / name


class Guard:
    """The guard of one recovery on this host."""

    def __init__(self, name: str, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._folder = state_folder(name)
        self._own: Path = self._folder / "recoveries" / plan["recovery"]
        self._ledger = self._folder / "ledger.jsonl"

    def arm(self) -> str | None:
        """Take the locks and write the plan; return who else works here, None once all is taken."""
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        for lock in ("recovery.lock", "lock"):
            descriptor = os.open(str(self._folder / lock), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 300, 0).decode("utf-8", "replace").strip()
                return holder or "another pdctl"
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._mark().encode(), 0)
        half_done = self._half_done()
        if half_done is not None:
            return half_done
        with (self._own / "guard.json").open("w") as file:
            json.dump(self._plan, file)
            file.flush()
            os.fsync(file.fileno())
        self.beat_path.touch()
        return None

    def is_mine(self, holder: str) -> bool:
        """Return whether the holder of a lock is a guard of this very recovery."""
        return holder == self._mark()

    @property
    def beat_path(self) -> Path:
        return self._own / "beat"

    def _mark(self) -> str:
        return "{} by {}".format(self._plan["recovery"], self._plan["by"])

    def _half_done(self) -> str | None:
        """Return another recovery that has stopped something here and has not started it again."""
        by: dict[str, str] = {}
        for entry in self._entries():
            if entry["step"] == "stopping" and entry["recovery"] != self._plan["recovery"]:
                by[entry["recovery"]] = entry["by"]
            elif entry["step"] in ("executed", "ended"):
                by.pop(entry["recovery"], None)
        return next((f"{recovery} by {who}, which is half done," for recovery, who in by.items()), None)

    def stay(self) -> None:
        """Watch until the recovery is over, or must be ended from here."""
        while True:
            steps = {entry["step"] for entry in self._entries() if entry["recovery"] == self._plan["recovery"]}
            if steps & {"executed", "ended"}:
                return
            if time.time() - self.beat_path.stat().st_mtime > self._plan["patience_s"]:
                if "stopping" in steps:
                    self._finish()
                else:
                    self._note("ended", detail="its client was gone", outcome="abandoned")
                return
            time.sleep(TICK_S)

    def _finish(self) -> None:
        words = "pdctl was gone for {:g} s; this host starts what was stopped".format(self._plan["patience_s"])
        self._note("taken_over", detail=words)
        ends_at = time.monotonic() + self._plan["drain_s"]
        for item in self._plan["targets"]:
            if self._still_stops(item["unit"], ends_at):
                self._systemctl("kill", "--signal=SIGKILL", item["unit"])
                self._still_stops(item["unit"], time.monotonic() + AFTER_KILL_S)
        failed = [item["instance"] for item in self._plan["targets"] if not self._started(item)]
        outcome = "not_ready" if failed else "started"
        detail = "not started: {}".format(", ".join(failed)) if failed else ""
        self._note("executed", detail=detail, outcome=outcome)
        self._note("ended", detail=words, outcome="not_ready" if failed else "not_verified")

    def _still_stops(self, unit: str, ends_at: float) -> bool:
        """Wait until a unit has stopped; return whether it has not by then."""
        while self._state(unit) == "deactivating":
            if time.monotonic() >= ends_at:
                return True
            time.sleep(TICK_S)
        return False

    def _started(self, item: dict[str, str]) -> bool:
        """Start one target, unless it runs: then it was never stopped, or somebody has started it.

        systemd starts one that still stops when it has stopped, and one whose state it does not tell may be down.
        """
        if self._state(item["unit"]) in RUNS:
            return True
        self._note("starting", item["instance"])
        self._systemctl("reset-failed", item["unit"])
        is_started = self._systemctl("start", "--no-block", item["unit"]) is not None
        if is_started:
            self._note("started", item["instance"])
        return is_started

    def _state(self, unit: str) -> str:
        return self._systemctl("show", "--property=ActiveState", unit, "--value") or ""

    def _systemctl(self, *words: str) -> str | None:
        """Return what it printed, None where it failed."""
        try:
            done = subprocess.run(
                ["systemctl", "--no-ask-password", *words], stdout=subprocess.PIPE, timeout=COMMAND_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None

    def _entries(self) -> list[dict[str, Any]]:
        found = []
        try:
            lines = self._ledger.read_bytes().splitlines()
        except OSError:
            return []
        for line in lines:
            try:
                entry = json.loads(line)
                found.append({key: entry[key] for key in ("recovery", "step", "by")})
            except (ValueError, KeyError, TypeError):
                continue  # a torn line
        return found

    def _note(self, step: str, instance: str = "", detail: str = "", outcome: str = "") -> None:
        words = {"instance": instance, "detail": detail, "outcome": outcome}
        by = "guard pid {} of {}".format(os.getpid(), self._plan["by"])
        entry = {"recovery": self._plan["recovery"], "at": time.time(), "step": step, "by": by}
        entry.update({key: value for key, value in words.items() if value})
        try:
            with self._ledger.open("ab") as file:
                file.write(json.dumps(entry).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:  # A full disk keeps nothing down.
            print(f"cannot note {step}: {error}", file=sys.stderr)


def main(name: str) -> int:
    """Arm, tell it, and stay behind."""
    os.umask(0o077)
    guard = Guard(name, json.load(sys.stdin))
    busy = guard.arm()
    if busy is not None and not guard.is_mine(busy):
        print(busy)
        return BUSY
    if busy is None:
        heard, told = os.pipe()
        if os.fork() == 0:
            _leave(guard, told)
        os.close(told)
        # What is still in our group when we end is killed with it.
        if not os.read(heard, 1):
            print("the guard died at once", file=sys.stderr)
            return 1
    print("armed")
    return 0


def _leave(guard: Guard, told: int) -> None:
    """Go on without the connection: another session, and nothing of its pipes."""
    os.setsid()
    log = os.open(str(guard.beat_path.with_name("guard.log")), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, number)
    os.write(told, b"!")
    guard.stay()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
