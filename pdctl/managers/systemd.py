"""systemd units on a host: look, stop, kill, start. Everything by `systemctl`, which asks nobody for a password here.

Traps, each seen with systemd 252: what is not counted reads `[not set]`; an InvocationID outlives its run; a unit that
failed too often cannot be started before `reset-failed`; `stop` wakes a process that SIGSTOP holds, so it acts on
SIGTERM; PartOf= and Requires= stop other units along with the one that was named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from pdctl.errors import PdctlError
from pdctl.hosts.child import Child, End
from pdctl.hosts.host import Host
from pdctl.managers.sight import Sight
from pdctl.managers.unkillable import Unkillable

ASK_S = 5.0
OUTPUT_MOST_BYTES = 4 << 20
PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "SubState", "Result", "MainPID", "ExecMainPID", "InvocationID", "NRestarts"),
    *("Restart", "ExecMainStartTimestamp", "ExecMainCode", "ExecMainStatus", "NeedDaemonReload", "FragmentPath"),
    *("DropInPaths", "EnvironmentFiles", "CanStart", "CanStop", "RefuseManualStart", "RefuseManualStop", "LoadError"),
    *("ConsistsOf", "RequiredBy", "BoundBy", "PropagatesStopTo"),
)
STOPPED_WITH = ("ConsistsOf", "RequiredBy", "BoundBy", "PropagatesStopTo")
"""Properties that name the units which a stop of this one stops too."""
RUNNING = ("active", "reloading", "refreshing")
POLL_S = 0.1
BIRTH_S = 10.0
AFTER_KILL_S = 3.0
LOST_S = 20.0
"""So long what a recovery asks is asked again where systemd, or the way to its host, gives no answer."""
_LOCALE = {"LC_ALL": "C", "TZ": "UTC"}
_CLD_EXITED = "1"

Pause = Callable[[float], None]
T = TypeVar("T")


class NoAnswer(PdctlError):
    """Neither yes nor no: the host is not reached, or its systemd is late. It may have done what was asked."""


class Unit(msgspec.Struct, frozen=True):
    """What `systemctl show` says of one unit; empty and `[not set]` are absent."""

    name: str
    shown: dict[str, str]

    def text(self, name: str) -> str:
        """Return a property, empty where it is unknown."""
        return self.shown.get(name, "")

    def number(self, name: str) -> int | None:
        """Return a property that counts, None where it is not counted."""
        value = self.text(name)
        return int(value) if value.isdigit() else None

    @property
    def pid(self) -> int | None:
        return self.number("MainPID") or None

    @property
    def started_at(self) -> float | None:
        """Return when its process started, Unix time to the second."""
        try:
            stamp = datetime.strptime(self.text("ExecMainStartTimestamp"), "%a %Y-%m-%d %H:%M:%S %Z")
        except ValueError:
            return None
        return stamp.replace(tzinfo=UTC).timestamp()

    @property
    def files(self) -> tuple[str, ...]:
        """Return the unit's file and its drop-ins."""
        return (*filter(None, (self.text("FragmentPath"),)), *self.text("DropInPaths").split())

    @property
    def environment(self) -> tuple[str, ...]:
        """Return the files of EnvironmentFile=, which `show` lists as `PATH (ignore_errors=no)`."""
        words = self.text("EnvironmentFiles").split()
        return tuple(word for word in words if word.startswith("/"))

    @property
    def stopped_with(self) -> tuple[str, ...]:
        """Return the units that systemd stops along with this one."""
        return tuple(dict.fromkeys(name for key in STOPPED_WITH for name in self.text(key).split()))

    def sight(self) -> Sight:
        """Return what every manager tells of an instance."""
        state = self.text("ActiveState")
        is_running = state in RUNNING or (state in ("activating", "deactivating") and self.pid is not None)
        return Sight(
            words=self._words(),
            is_running=is_running,
            is_pending=not is_running and state in ("activating", "deactivating"),
            pid=self.pid if is_running else None,
            run=self.text("InvocationID") or None if is_running else None,
            started_at=self.started_at if is_running else None,
            restarts=self.number("NRestarts") or 0,
            restart=self.text("Restart") or "no",
        )

    def _words(self) -> str:
        if self.text("LoadState") not in ("", "loaded"):
            return f"unit {self.text('LoadState')}"
        state, sub = self.text("ActiveState"), self.text("SubState")
        if state in RUNNING:
            return sub or state
        if state != "failed":
            return f"{state} ({sub})" if sub not in ("", "dead") else state
        kind = "exited with code" if self.text("ExecMainCode") == _CLD_EXITED else "killed by signal"
        return f"failed ({self.text('Result')}): {kind} {self.text('ExecMainStatus')}"


def parse(output: str) -> dict[str, Unit]:
    """Return the units of `systemctl show`, by the name that each has itself."""
    units = {}
    for block in output.split("\n\n"):
        pairs = (line.partition("=") for line in block.splitlines())
        shown = {name: value for name, _, value in pairs if value not in ("", "[not set]")}
        if name := shown.get("Id"):
            units[name] = Unit(name, shown)
    return units


def show(host: Host, names: Iterable[str], deadline_s: float = ASK_S) -> dict[str, Unit]:
    """Ask for some units, all at once (15 ms). Raises PdctlError where systemd does not answer."""
    names = tuple(dict.fromkeys(names))
    if not names:
        return {}
    argv = ["systemctl", "show", f"--property={','.join(PROPERTIES)}", "--", *names]
    done = host.run_now(argv, deadline_s=deadline_s, most_bytes=OUTPUT_MOST_BYTES, env=_LOCALE)
    if not done.ok:
        raise _failed(host, "show", names, done)
    return parse(done.stdout.decode("utf-8", "replace"))


def look(host: Host, name: str) -> Unit:
    """Ask for one unit. Raises PdctlError."""
    return show(host, [name]).get(name, Unit(name, {"LoadState": "not-found", "ActiveState": "inactive"}))


def stopped_with(host: Host, name: str) -> tuple[str, ...]:
    """Return every unit that a stop of this one stops, however many units lie between. Raises PdctlError.

    systemd knows the ties of what it has loaded, and what runs is loaded.
    """
    seen: dict[str, None] = {name: None}
    asked: tuple[str, ...] = (name,)
    while asked:
        found = [other for unit in show(host, asked).values() for other in unit.stopped_with]
        asked = tuple(dict.fromkeys(other for other in found if other not in seen))
        seen |= dict.fromkeys(asked)
    return tuple(seen)[1:]


def ask_to_stop(host: Host, name: str) -> None:
    """Let systemd stop a unit by its own rules, without waiting for it. Raises PdctlError."""
    _do(host, "stop", name, "--no-block")


def await_stopped(host: Host, name: str, deadline_s: float, pause: Pause = time.sleep) -> bool:
    """Wait until nothing of a unit is left, killing all of it at the deadline; return whether it was killed.

    Raises Unkillable where it was seen to survive SIGKILL, PdctlError where nothing could be seen or killed.
    """
    if (unit := _last_seen_within(host, name, deadline_s, pause)).sight().is_down:
        return unit.text("Result") == "timeout"
    not_killed = None
    try:
        _do(host, "kill", name, "--signal=SIGKILL", pause=pause)
    except PdctlError as error:  # It may just have ended by itself.
        not_killed = error
    if (unit := _last_seen_within(host, name, AFTER_KILL_S, pause)).sight().is_down:
        return True
    raise not_killed or Unkillable(
        f"{name} on {host.name} survives SIGKILL (main pid {unit.pid})",
        "it hangs in the kernel: see `cat /proc/PID/stack` there; the host may need a reboot",
    )


def is_frozen(host: Host, name: str) -> bool:
    """Return whether a signal or a debugger holds the unit's main process: it cannot act on SIGTERM by itself."""
    pid = _answered(lambda: look(host, name), time.sleep).pid
    if pid is None:
        return False
    done = host.run_now(["cat", f"/proc/{pid}/stat"], deadline_s=ASK_S, most_bytes=1 << 16)
    return done.stdout.rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"])


def start(host: Host, name: str, pause: Pause = time.sleep) -> Sight:
    """Start a unit and return once its process exists, or is still being prepared for after BIRTH_S (ExecStartPre=).

    Raises PdctlError with systemd's words.
    """
    # One that failed too often is refused until it is forgotten; what was never loaded has nothing to forget.
    host.run_now(["systemctl", "reset-failed", "--", name], deadline_s=ASK_S, most_bytes=1 << 16)
    _do(host, "start", name, "--no-block", pause=pause)
    ends_at = time.monotonic() + BIRTH_S
    while True:
        unit = _answered(lambda: look(host, name), pause)
        seen, is_late = unit.sight(), time.monotonic() >= ends_at
        if unit.pid is not None or unit.text("ActiveState") == "active" or (is_late and seen.is_pending):
            return seen
        if unit.text("ActiveState") == "failed" or is_late:
            raise PdctlError(
                f"{name} on {host.name} did not start: {seen.words}", f"journalctl -u {name} -n 50   says why, there"
            )
        pause(POLL_S)


def last_words(host: Host, name: str, count: int) -> tuple[str, ...]:
    """Return the last lines of the unit's present or last run, from the journal; empty where it cannot be read."""
    unit = look(host, name)
    run, began, pid = unit.text("InvocationID"), unit.started_at, unit.number("ExecMainPID")
    fields = [f"_SYSTEMD_INVOCATION_ID={run}", "+", f"INVOCATION_ID={run}"] if run else ["-u", name]
    if run and pid and began is not None:
        # Of a process that is gone when journald reads what it said, neither unit nor run is known, only the pid.
        fields = ["--since", f"@{began:.0f}", *fields, "+", f"_PID={pid}"]
    argv = ["journalctl", "-q", "--no-pager", "-o", "cat", "-n", str(count), *fields]
    done = host.run_now(argv, deadline_s=ASK_S, most_bytes=1 << 20)
    return tuple(done.stdout.decode("utf-8", "replace").splitlines())


def _last_seen_within(host: Host, name: str, deadline_s: float, pause: Pause) -> Unit:
    """Return a unit as soon as it is down, else as it is at the deadline."""
    ends_at = time.monotonic() + deadline_s
    while True:
        unit = _answered(lambda: look(host, name), pause)
        if unit.sight().is_down or time.monotonic() >= ends_at:
            return unit
        pause(POLL_S)


def _do(host: Host, verb: str, name: str, *options: str, pause: Pause = time.sleep) -> None:
    def once() -> None:
        argv = ["systemctl", "--no-ask-password", verb, *options, "--", name]
        done = host.run_now(argv, deadline_s=ASK_S, most_bytes=1 << 16, env=_LOCALE)
        if not done.ok:
            raise _failed(host, verb, (name,), done)

    _answered(once, pause)


def _answered(ask: Callable[[], T], pause: Pause) -> T:
    """Ask for what may be asked twice until there is an answer, at most LOST_S: what was stopped must come up again."""
    gives_up_at = time.monotonic() + LOST_S
    while True:
        try:
            return ask()
        except NoAnswer:
            if time.monotonic() >= gives_up_at:
                raise
        pause(POLL_S)


_REMEDIES = (
    ("ccess denied", "run pdctl as root, or name a host that does: host = 'ssh:root@NAME'"),
    ("nteractive authentication", "run pdctl as root, or name a host that does: host = 'ssh:root@NAME'"),
    ("not been booted with systemd", "the units are not on this host: set `host` of the instance in pd.toml"),
    ("refused", "the unit refuses to be stopped or started by hand: see RefuseManualStop= in it"),
)


def _failed(host: Host, verb: str, names: Sequence[str], done: Child) -> PdctlError:
    if done.end in (End.UNREACHABLE, End.TIMEOUT):
        return NoAnswer(done.describe(), "nothing is known of its units meanwhile")
    hint = next((remedy for words, remedy in _REMEDIES if words in done.stderr), f"see `systemctl status {names[0]}`")
    # systemctl says what is wrong first; its last line only says where more stands.
    words = next((line for line in done.stderr.splitlines() if line.strip()), done.describe())
    return PdctlError(f"systemctl {verb} {' '.join(names)} on {host.name}: {words}", hint)
