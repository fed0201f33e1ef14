"""Judgements -> rows of the report."""

from __future__ import annotations

import hashlib

from pdctl.diagnose.analyzer import Weight
from pdctl.diagnose.answer import Answer
from pdctl.diagnose.case import Case
from pdctl.diagnose.explanation import Explanation, Undecided
from pdctl.diagnose.judgement import Judgement, Observation, Status
from pdctl.diagnose.next_steps import steps_for
from pdctl.diagnose.report import (
    Cause,
    NotChecked,
    ObservationRow,
    RuledOut,
    Separator,
    SourceRef,
    Subject,
    UndecidedRow,
)

_MOST_HYPOTHESES = 5


def cause_rows(case: Case, explanation: Explanation, deployment: str) -> tuple[Cause, ...]:
    """Return the causes: initiating, what follows from them, then the likeliest that are not proven."""
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
        observations=tuple(observation_row(row) for row in told),
        next=steps_for(case, item) if causal_role == "initiating" else (),
        runbook=item.code.runbook,
        fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:12],
    )


def observation_row(item: Observation) -> ObservationRow:
    """Return an observation with its place; a false one refutes, whatever it was asked for."""
    return _answer_row(item.answer, "refutes" if item.answer.is_false else str(item.weight))


def _answer_row(answer: Answer, weight: str) -> ObservationRow:
    place = answer.place
    source = SourceRef(file=place.file, line=place.line, pointer=place.pointer) if place else SourceRef()
    return ObservationRow(text=answer.text, weight=weight, source=source, value=answer.value, unit=answer.unit)


def ruled_out_row(item: Judgement) -> RuledOut:
    """Return what excludes a cause."""
    against = item.against()
    answer = against.answer if against else Answer(truth=item.observations[0].answer.truth, text="")
    return RuledOut(
        code=item.code.code,
        label=item.code.label,
        reason=f"{item.code.title}? no: {answer.text}",
        observation=_answer_row(answer, "refutes"),
    )


def undecided_row(item: Undecided) -> UndecidedRow:
    """Return causes between which nothing decides, and what would."""
    return UndecidedRow(
        codes=item.codes, separate_by=Separator(text=item.check, command=f"pdctl stacks {item.instance}")
    )


def not_checked_row(item: Judgement) -> NotChecked:
    """Return why a cause could not be judged."""
    return NotChecked(code=item.code.code, reason=missing(item))


def missing(item: Judgement) -> str:
    """Return the first thing that is not known of a cause."""
    if not item.observations:
        return "there is no instance it could be about"
    return next((row.answer.text for row in item.observations if not row.answer.is_true), "nothing speaks for it")
