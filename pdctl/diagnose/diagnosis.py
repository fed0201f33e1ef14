"""Evidence in, report out."""

from __future__ import annotations

import hashlib
from datetime import datetime

from pdctl import __version__
from pdctl.diagnose.analyzer import Analyzer, Weight
from pdctl.diagnose.answer import Answer
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes import ANALYZERS
from pdctl.diagnose.explanation import Explanation, Undecided, explain
from pdctl.diagnose.judgement import Judgement, Observation, Status, judge
from pdctl.diagnose.next_steps import steps_for
from pdctl.diagnose.report import (
    Cause,
    CollectorRow,
    Impact,
    NotChecked,
    ObservationRow,
    PairState,
    Report,
    RuledOut,
    Separator,
    SourceRef,
    Subject,
    SymptomRow,
    Tool,
    UndecidedRow,
)
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.timeline import changes_of, timeline_of
from pdctl.diagnose.verdict import Verdict, verdict_of
from pdctl.evidence.model import Evidence

_MOST_HYPOTHESES = 5


def diagnose(evidence: Evidence, deployment: str = "", analyzers: tuple[Analyzer, ...] = ANALYZERS) -> Report:
    """Return the report on the evidence. The same evidence gives the same report, byte for byte."""
    case = Case(evidence)
    judgements = judge(case, analyzers)
    explanation = explain(case, judgements)
    verdict = verdict_of(case, explanation)
    since = _since(case)
    causes = _causes(case, explanation, deployment)
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
        checked=len(judgements),
        complete=not evidence.problems and not any(item.capture.failed for item in evidence.instances),
        affected=_affected(case, explanation),
        since=since,
        symptoms=tuple(
            SymptomRow(symptom=item.symptom, instance=item.instance, unit=item.unit, text=item.text, value=item.value)
            for item in case.symptoms
        ),
        causes=causes,
        ruled_out=tuple(_ruled_out(item) for item in judgements if item.status is Status.RULED_OUT),
        undecided=tuple(_undecided(item) for item in explanation.undecided),
        not_checked=tuple(
            NotChecked(code=item.code.code, reason=_missing(item))
            for item in judgements
            if item.status is Status.NOT_CHECKED
        ),
        collectors=_collectors(evidence),
        timeline=timeline_of(case),
    )


def _causes(case: Case, explanation: Explanation, deployment: str) -> tuple[Cause, ...]:
    rows = [_cause(case, item, "initiating", item.status, deployment) for item in explanation.initiating]
    rows.extend(_cause(case, item, "cascade", item.status, deployment) for item in explanation.cascade)
    rows.extend(
        _cause(case, item, "unknown", Status.HYPOTHESIS, deployment)
        for item in explanation.hypotheses[:_MOST_HYPOTHESES]
    )
    return tuple(rows)


def _cause(case: Case, item: Judgement, causal_role: str, status: Status, deployment: str) -> Cause:
    view = case.view(item.instance)
    told = [row for row in item.observations if row.answer.is_true or row.answer.is_false]
    told.sort(key=lambda row: (not row.answer.is_true, row.weight is not Weight.PROVES))
    first = next((row.answer.text for row in told if row.answer.is_true and row.weight is not Weight.REQUIRES), "")
    identity = f"{deployment}|{item.code.code}|{item.instance}"
    return Cause(
        code=item.code.code,
        name=item.code.name,
        label=item.code.label,
        level=item.code.level,
        confidence=status,
        subject=Subject(instance=item.instance, role=view.role if view else ""),
        affected=item.affected,
        message=f"{item.code.title}: {first}" if first else item.code.title,
        causal_role=causal_role,
        observations=tuple(_row(row) for row in told),
        next=steps_for(case, item) if causal_role == "initiating" else (),
        runbook=item.code.runbook,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:12],
    )


def _row(item: Observation) -> ObservationRow:
    weight = "refutes" if item.answer.is_false else str(item.weight)
    return _answer_row(item.answer, weight)


def _answer_row(answer: Answer, weight: str) -> ObservationRow:
    place = answer.place
    source = SourceRef(file=place.file, line=place.line, pointer=place.pointer) if place else SourceRef()
    return ObservationRow(text=answer.text, weight=weight, source=source, value=answer.value, unit=answer.unit)


def _ruled_out(item: Judgement) -> RuledOut:
    against = item.against()
    answer = against.answer if against else Answer(truth=item.observations[0].answer.truth, text="")
    return RuledOut(
        code=item.code.code,
        label=item.code.label,
        reason=f"{item.code.title}? no: {answer.text}",
        observation=_answer_row(answer, "refutes"),
    )


def _undecided(item: Undecided) -> UndecidedRow:
    return UndecidedRow(codes=item.codes, separate_by=Separator(text=item.check, command="pdctl stacks --native"))


def _missing(item: Judgement) -> str:
    if not item.observations:
        return "there is no instance it could be about"
    return next((row.answer.text for row in item.observations if not row.answer.is_true), "nothing speaks for it")


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
