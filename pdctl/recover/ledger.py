"""What was done to a deployment, by whom and when: JSON lines, each on the disk before the step it names.

It lies beside the processes (`STATE/NAME/ledger.jsonl`), so every operator of this host sees the same one.

    planned -> snapshot -> (aborting -> verifying ->) handed_over -> (waiting ->) taken_over -> stopping
            -> stopped* -> starting* -> started* -> ready* -> executed -> verifying -> ended

From `stopping` on the only safe direction is forward.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from pdctl.errors import PdctlError

FILE = "ledger.jsonl"


class Step(StrEnum):
    PLANNED = "planned"
    SNAPSHOT = "snapshot"
    ABORTING = "aborting"
    """Every request of the engines concerned, where that may be all that is needed."""
    HANDED_OVER = "handed_over"
    """The whole plan is on the host's disk; an executor runs it whatever becomes of the client."""
    WAITING = "waiting"
    """For another pdctl that starts or stops something here."""
    TAKEN_OVER = "taken_over"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    STARTED = "started"
    READY = "ready"
    FAULT = "fault"
    EXECUTED = "executed"
    VERIFYING = "verifying"
    ENDED = "ended"


class Outcome(StrEnum):
    RECOVERED = "recovered"
    NOT_VERIFIED = "not_verified"
    """The engines are well, the requests are not."""
    ROUTER = "router_fails"
    """Direct requests pass, those through the router do not."""
    STARTED = "started"
    """Of an execution: every target is well."""
    NOT_READY = "not_ready"
    UNKILLABLE = "unkillable"
    """A process survives SIGKILL; nothing was started beside it."""
    REFUSED = "refused"
    """Somebody else had restarted a target; nothing was done."""
    CANCELLED = "cancelled"
    """Before the first signal."""
    ABANDONED = "abandoned"
    """Its client died before the first signal."""


class InstanceState(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the before/after table."""

    name: str
    process: str
    health: str
    pid: int | None = None
    running: int | None = None
    waiting: int | None = None
    oldest_s: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Why, and what of."""

    command: str
    targets: tuple[str, ...]
    reason: str | None = None
    verdict: str | None = None
    cause: str | None = None
    fingerprint: str | None = None
    forced: bool = False
    before: tuple[InstanceState, ...] = ()


class PhaseTime(msgspec.Struct, frozen=True):
    name: str
    took_s: float


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `at` is Unix time."""

    recovery: str
    at: float
    step: Step
    by: str
    instance: str = ""
    detail: str = ""
    pid: int | None = None
    run: str | None = None
    """Names the process for good: `PID@START_TICKS`, or a unit's InvocationID."""
    took_s: float | None = None
    outcome: Outcome | None = None
    summary: Summary | None = None
    after: tuple[InstanceState, ...] = ()
    phases: tuple[PhaseTime, ...] = ()


def operator() -> str:
    """Return who acts here: `USER@HOST pid N`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()}"


@dataclass(frozen=True, slots=True)
class Recovery:
    """All that the ledger knows of one recovery."""

    id: str
    entries: tuple[Entry, ...]

    def has(self, step: Step, instance: str | None = None) -> bool:
        """Return whether a step was entered, of an instance or of any."""
        return self.last(step, instance) is not None

    def last(self, step: Step, instance: str | None = None) -> Entry | None:
        """Return the latest entry of a step."""
        fitting = (e for e in reversed(self.entries) if e.step is step and instance in (None, e.instance))
        return next(fitting, None)

    @property
    def summary(self) -> Summary:
        """Return why and what of; a stand-in where the first line was lost."""
        entry = self.last(Step.PLANNED)
        return entry.summary if entry and entry.summary else Summary(command="?", targets=())

    @property
    def outcome(self) -> Outcome | None:
        """Return how it ended, None while it has not."""
        entry = self.last(Step.ENDED)
        return entry.outcome if entry else None


class Ledger:
    """The ledger of one deployment."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def append(self, entry: Entry) -> None:
        """Put one line on the disk. Raises PdctlError when it is not there for certain."""
        line = msgspec.json.encode(entry) + b"\n"
        try:
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if _is_torn(descriptor):
                    # A killed writer or a full disk left half a line; it must not spoil ours.
                    line = b"\n" + line
                if os.write(descriptor, line) != len(line):
                    raise OSError(28, os.strerror(28))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if is_new:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise PdctlError(
                f"cannot write {entry.step!r} to {self.path}: {error.strerror}", "make room there, then run it again"
            ) from error

    def recoveries(self) -> tuple[Recovery, ...]:
        """Return every recovery, oldest first; a torn line is skipped. Raises PdctlError if it cannot be read."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise PdctlError(f"cannot read {self.path}: {error.strerror}", "make it readable") from error
        return parse(data)

    def recovery(self, name: str) -> Recovery:
        """Return one recovery, without entries where it has none."""
        return next((item for item in self.recoveries() if item.id == name), Recovery(name, ()))

    def unfinished(self) -> Recovery | None:
        """Return the latest recovery that has not ended."""
        return next((item for item in reversed(self.recoveries()) if item.outcome is None), None)


@dataclass(frozen=True, slots=True)
class Notes:
    """Writes the lines of one recovery."""

    ledger: Ledger
    recovery: str

    def note(
        self,
        step: Step,
        instance: str = "",
        detail: str = "",
        *,
        outcome: Outcome | None = None,
        took_s: float | None = None,
        pid: int | None = None,
        run: str | None = None,
    ) -> None:
        """Write one step down; raises PdctlError when that is impossible."""
        self.ledger.append(
            Entry(
                recovery=self.recovery,
                at=time.time(),
                step=step,
                by=operator(),
                instance=instance,
                detail=detail,
                pid=pid,
                run=run,
                took_s=None if took_s is None else round(took_s, 3),
                outcome=outcome,
            )
        )


def parse(data: bytes) -> tuple[Recovery, ...]:
    """Return the recoveries of a ledger, oldest first; lines that are torn are skipped."""
    grouped: dict[str, list[Entry]] = {}
    for entry in _entries(data.splitlines()):
        grouped.setdefault(entry.recovery, []).append(entry)
    return tuple(Recovery(name, tuple(entries)) for name, entries in grouped.items())


def _entries(lines: Iterable[bytes]) -> Iterable[Entry]:
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield msgspec.json.decode(line, type=Entry)


def _is_torn(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
