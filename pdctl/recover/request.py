"""What is asked for, what came of it, and what the flow needs of the outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pdctl.diagnose.report import Report
from pdctl.recover.gates import Wish
from pdctl.recover.ledger import InstanceState, Outcome, PhaseTime
from pdctl.recover.proposal import Choice, Proposal
from pdctl.recover.verification import Verification

Say = Callable[[str], None]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator asked for."""

    command: str
    wish: Wish
    names: tuple[str, ...] = ()
    """Empty: what the diagnosis says."""
    accept_drift: bool = False
    dry_run: bool = False
    drain_s: float | None = None
    """None: as long as what is restarted may still finish something."""
    ready_timeout_s: float = 120.0
    probe_timeout_s: float = 30.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `outcome` is None for a dry run."""

    deployment: str
    recovery: str | None
    outcome: Outcome | None
    detail: str = ""
    before: tuple[InstanceState, ...] = ()
    after: tuple[InstanceState, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    verification: Verification | None = None
    kept: str | None = None
    """Directory of the exact evidence, on this machine."""
    archive: str | None = None
    """The redacted archive, to be sent."""
    proposal: Proposal | None = None
    was_continued: bool = False

    @property
    def exit_code(self) -> int:
        """Return 0 proven (or only shown), 5 refused, 1 otherwise."""
        return {Outcome.RECOVERED: 0, None: 0, Outcome.REFUSED: 5, Outcome.CANCELLED: 130}.get(self.outcome, 1)


@dataclass(frozen=True, slots=True)
class Operations:
    """What the flow needs of the outside."""

    say: Say
    choose: Callable[[Proposal], Choice]
    """Asks a person on a terminal."""
    diagnose: Callable[[], Report] | None = None
    """Collects, reads and judges the live deployment."""
    snapshot: Callable[[], Path] | None = None
    """Keeps the evidence and returns its directory. Called while everything still stands."""
    share: Callable[[Path], Path] | None = None
    """Makes the shared archive of a kept directory, when service is back."""
    snapshot_budget_s: float = 10.0


class Phases:
    """A stopwatch with names."""

    def __init__(self) -> None:
        self._times: list[PhaseTime] = []
        self._lap_at = time.monotonic()

    def lap(self, name: str) -> None:
        """Note the time since the last lap."""
        now = time.monotonic()
        self._times.append(PhaseTime(name, round(now - self._lap_at, 3)))
        self._lap_at = now

    def split(self, parts: tuple[PhaseTime, ...]) -> None:
        """Note the time since the last lap in parts that somebody else measured, and what is left as `hand over`."""
        began = self._lap_at
        self.lap("hand over")
        rest_s = max(0.0, self._lap_at - began - sum(part.took_s for part in parts))
        self._times[-1:] = [PhaseTime("hand over", round(rest_s, 3)), *parts]

    def all(self) -> tuple[PhaseTime, ...]:
        """Return every lap."""
        return tuple(self._times)
