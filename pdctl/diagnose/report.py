"""The report as a record: what `pdctl diagnose -o json` prints, and what every other form is drawn from."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    commit: str | None = None


class PairState(msgspec.Struct, frozen=True, kw_only=True):
    """One prefill-decode pair: serving | stalled | failing | unknown."""

    prefill: str
    decode: str
    state: str


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    """none | partial | total"""
    pairs: tuple[PairState, ...]
    basis: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime | None
    instance: str
    what: str


class SourceRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    file: str = ""
    line: int | None = None
    pointer: str | None = None


class ObservationRow(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    weight: str
    """proves | requires | suggests | refutes"""
    source: SourceRef
    value: float | None = None
    unit: str | None = None


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    instance: str
    role: str
    rank: str | None = None
    request: str | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    action: str
    command: str
    risk: str
    """read-only | loses-requests | restarts"""
    undo: str | None = None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    name: str
    label: str
    level: str
    confidence: str
    subject: Subject
    affected: tuple[str, ...]
    message: str
    causal_role: str
    observations: tuple[ObservationRow, ...]
    next: tuple[Step, ...]
    runbook: str
    fingerprint: str

    @property
    def is_firm(self) -> bool:
        """Return whether it stands: established or supported."""
        return self.confidence in ("established", "supported")


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    label: str
    reason: str
    observation: ObservationRow


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a suspected cause is it."""

    code: str
    name: str
    label: str
    answer: str
    """yes | follows | no | possible | unlikely | not_checked"""
    instance: str
    text: str
    """What decides, with its number; of `not_checked`, what is missing."""
    observation: ObservationRow | None
    confirm: str
    """The command that tells how to check it by hand."""


class Separator(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    command: str


class UndecidedRow(msgspec.Struct, frozen=True, kw_only=True):
    codes: tuple[str, ...]
    separate_by: Separator


class NotChecked(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    reason: str


class CollectorRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    instance: str
    status: str
    """ok | failed | timeout | denied | absent"""
    took_ms: float | None = None
    bytes: int | None = None
    pause_ms: float | None = None
    error: str | None = None


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    instance: str
    what: str
    source: SourceRef


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One branch of the folded stacks of an instance's ranks; its branches follow it, one deeper."""

    instance: str
    depth: int
    path: tuple[str, ...]
    """Functions that all of these ranks are in, outermost first."""
    ranks: tuple[str, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier incident of the same deployment with a symptom of this one; `same_cause`: and with its cause."""

    incident_id: str
    at: datetime
    same_cause: bool
    verdict: str
    codes: tuple[str, ...]
    """Causes that stood then, best first; none: nobody knew."""


class SymptomRow(msgspec.Struct, frozen=True, kw_only=True):
    """An observed symptom: what is wrong before anybody asks why."""

    symptom: str
    instance: str
    unit: str
    text: str
    value: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. Fields may be added, never renamed."""

    schema: str = "pdctl.report/1"
    tool: Tool
    captured_at: datetime | None
    deployment: str
    verdict: str
    impact: Impact
    incident_id: str
    seen_before: tuple[Seen, ...] = ()
    changes: tuple[Change, ...] = ()
    probe: tuple[dict[str, str | float | None], ...] = ()
    clock_skew_ms: dict[str, float] = {}
    checked: int
    suppressed: tuple[str, ...] = ()
    """Codes that are firm, and accepted until a day that has not passed."""
    hidden: tuple[str, ...] = ()
    """Codes that are firm, and left out because others were asked for."""
    complete: bool
    affected: tuple[str, ...]
    since: datetime | None
    symptoms: tuple[SymptomRow, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()
    causes: tuple[Cause, ...]
    ruled_out: tuple[RuledOut, ...]
    undecided: tuple[UndecidedRow, ...]
    not_checked: tuple[NotChecked, ...]
    collectors: tuple[CollectorRow, ...]
    timeline: tuple[Moment, ...]
    rank_stacks: tuple[RankRow, ...] = ()

    @property
    def firm(self) -> tuple[Cause, ...]:
        """Return the causes that stand, best first."""
        return tuple(cause for cause in self.causes if cause.is_firm)

    @property
    def abstains(self) -> bool:
        """Return whether no cause stands."""
        return not self.firm
