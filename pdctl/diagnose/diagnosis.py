"""Evidence in, report out."""

from __future__ import annotations

import hashlib
from datetime import datetime

from pdctl import __version__
from pdctl.diagnose.analyzer import Analyzer
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes import ANALYZERS
from pdctl.diagnose.explanation import Explanation, explain
from pdctl.diagnose.focus import Focus
from pdctl.diagnose.judgement import Status, judge
from pdctl.diagnose.rank_trie import rank_rows
from pdctl.diagnose.report import CollectorRow, Impact, PairState, Report, SymptomRow, Tool
from pdctl.diagnose.rows import cause_rows, not_checked_row, ruled_out_row, undecided_row
from pdctl.diagnose.suspicion import suspicions_of
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.timeline import LONGEST, changes_of, timeline_of
from pdctl.diagnose.verdict import Verdict, verdict_of
from pdctl.evidence.model import Evidence

_NO_FOCUS = Focus()


def diagnose(
    evidence: Evidence, deployment: str = "", analyzers: tuple[Analyzer, ...] = ANALYZERS, focus: Focus = _NO_FOCUS
) -> Report:
    """Return the report on the evidence. The same evidence gives the same report, byte for byte.

    `focus` chooses what is shown; every cause is judged all the same, so that rivals of a chosen one still count.
    """
    case = Case(evidence)
    judgements = judge(case, analyzers)
    explanation = explain(case, judgements)
    suppressed = focus.suppressed((*explanation.initiating, *explanation.cascade), evidence.captured_at)
    verdict = verdict_of(case, explanation, suppressed)
    since = _since(case)
    causes = cause_rows(case, explanation, deployment)
    open_causes = tuple(cause for cause in causes if cause.code not in suppressed)
    shown = tuple(item for item in judgements if focus.shows(item.code.code))
    return Report(
        tool=Tool(version=__version__),
        captured_at=evidence.captured_at,
        deployment=deployment,
        verdict=verdict,
        impact=_impact(case, verdict),
        incident_id=_identity(case, deployment, causes[0].code if causes else str(verdict)),
        changes=changes_of(case, since),
        probe=tuple(_probe_row(item) for item in evidence.probes),
        clock_skew_ms={
            item.name: item.capture.clock_offset_ms
            for item in evidence.instances
            if item.capture.clock_offset_ms is not None
        },
        checked=len(shown),
        suppressed=tuple(sorted(suppressed)),
        hidden=tuple(cause.code for cause in open_causes if cause.is_firm and not focus.shows(cause.code)),
        complete=not evidence.problems and not any(item.capture.failed for item in evidence.instances),
        affected=_affected(case, explanation),
        since=since,
        symptoms=tuple(
            SymptomRow(symptom=item.symptom, instance=item.instance, unit=item.unit, text=item.text, value=item.value)
            for item in case.symptoms
        ),
        suspicions=suspicions_of(judgements, explanation, focus.suspects),
        causes=tuple(cause for cause in open_causes if focus.shows(cause.code)),
        ruled_out=tuple(ruled_out_row(item) for item in shown if item.status is Status.RULED_OUT),
        undecided=tuple(undecided_row(item) for item in explanation.undecided if focus.shows(*item.codes)),
        not_checked=tuple(not_checked_row(item) for item in shown if item.status is Status.NOT_CHECKED),
        collectors=_collectors(evidence),
        timeline=timeline_of(case)[-LONGEST:],
        rank_stacks=tuple(row for view in case.views for row in rank_rows(view.name, view.raw.stacks)),
    )


def _impact(case: Case, verdict: Verdict) -> Impact:
    pairs = tuple(
        PairState(prefill=prefill.name, decode=decode.name, state=_pair_state(case, prefill.name, decode.name))
        for decode in case.decodes
        for prefill in case.peers(decode)
    )
    bad = sum(1 for pair in pairs if pair.state in ("stalled", "failing"))
    is_bad = verdict in (Verdict.WEDGED, Verdict.FAILING)
    if verdict in (Verdict.HEALTHY, Verdict.NOT_A_WEDGE) or (not is_bad and bad == 0):
        scope = "none"
    else:
        scope = "total" if not case.is_moving and (bad == len(pairs) or not pairs) else "partial"
    basis = next((item.text for item in case.symptoms), "no symptom")
    return Impact(scope=scope, pairs=pairs, basis=basis)


def _pair_state(case: Case, *names: str) -> str:
    kinds = {item.symptom for item in case.symptoms if item.instance in names}
    if kinds & {Symptom.STALLED, Symptom.STUCK_SUBSET, Symptom.STOPPED}:
        return "stalled"
    if kinds & {Symptom.FAILING, Symptom.GONE}:
        return "failing"
    return "serving" if case.is_moving else "unknown"


def _affected(case: Case, explanation: Explanation) -> tuple[str, ...]:
    named = {name for item in explanation.initiating for name in item.affected}
    named |= {item.instance for item in case.symptoms if item.instance}
    return tuple(view.name for view in case.views if view.name in named)


def _since(case: Case) -> datetime | None:
    """Return when work stopped: the last step of an instance that stands; None when that is not known."""
    standing = {item.instance for item in case.symptoms if item.symptom in (Symptom.STALLED, Symptom.SUSPECTED)}
    ends = [view.last_step.at for view in case.views if view.name in standing and view.last_step and view.last_step.at]
    return max(ends, default=None)


def _identity(case: Case, deployment: str, what: str) -> str:
    """Return an id that stays the same while the same processes suffer from the same thing."""
    parts = [deployment, what]
    parts += [f"{view.name}@{view.started_at.isoformat() if view.started_at else ''}" for view in case.views]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]


def _probe_row(probe: object) -> dict[str, str | float | None]:
    fields = ("via", "status", "took_ms", "timeout_ms", "error", "stage", "output", "id", "pair")
    return {name: getattr(probe, name) for name in fields}


def _collectors(evidence: Evidence) -> tuple[CollectorRow, ...]:
    rows: list[CollectorRow] = []
    for item in evidence.instances:
        taken = {
            "metrics": item.metrics is not None,
            "log": item.log is not None,
            "stacks": bool(item.stacks),
            "processes": bool(item.processes),
            "http": bool(item.gets),
            "gpu": bool(item.gpus),
            "source": item.source is not None,
        }
        failed = {name.partition(".")[0]: error for name, error in item.capture.failed.items()}
        for name, is_taken in taken.items():
            error = failed.get(name) or failed.get(name.removesuffix("es"))
            status = "failed" if error else "ok" if is_taken else "absent"
            rows.append(CollectorRow(name=name, instance=item.name, status=status, error=error))
    return tuple(rows)
