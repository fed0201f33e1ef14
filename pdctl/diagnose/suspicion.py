"""Is it that? One answer for each suspected cause, with the number that decides or what is missing."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Weight
from pdctl.diagnose.explanation import Explanation
from pdctl.diagnose.judgement import Judgement, Observation, Status
from pdctl.diagnose.report import Suspicion
from pdctl.diagnose.rows import missing, observation_row

_ORDER = ("yes", "follows", "possible", "not_checked", "unlikely", "no")


def suspicions_of(
    judgements: tuple[Judgement, ...], explanation: Explanation, codes: tuple[str, ...]
) -> tuple[Suspicion, ...]:
    """Return one row a suspected code: what it is or may be before what it is not."""
    rows = [_suspicion(item, explanation) for item in judgements if item.code.code in codes]
    return tuple(sorted(rows, key=lambda row: (_ORDER.index(row.answer), row.code)))


def _suspicion(item: Judgement, explanation: Explanation) -> Suspicion:
    answer, text, decisive = _answer(item, explanation)
    return Suspicion(
        code=item.code.code,
        name=item.code.name,
        label=item.code.label,
        answer=answer,
        instance=item.instance,
        text=text,
        observation=observation_row(decisive) if decisive else None,
        confirm=f"pdctl explain {item.code.code}",
    )


def _answer(item: Judgement, explanation: Explanation) -> tuple[str, str, Observation | None]:
    """Return (yes | follows | no | possible | unlikely | not_checked, why, the observation that decides)."""
    speaks = _first(item, is_true=True)
    if item in explanation.initiating:
        return "yes", speaks.answer.text if speaks else item.code.title, speaks
    if item in explanation.cascade:
        first = explanation.initiating[0].code
        return "follows", f"true, but it follows from {first.code} {first.name}", speaks
    against = item.against()
    if against is not None:
        return "no", against.answer.text, against
    if item.is_firm:
        return "possible", _contest(item, explanation), speaks
    if item.status is Status.UNLIKELY:
        refuting = _first(item, is_true=False)
        return "unlikely", refuting.answer.text if refuting else missing(item), refuting
    if item.status is Status.HYPOTHESIS and speaks is not None:
        return "possible", f"{speaks.answer.text}; not proven: {_unproven(item)}", speaks
    return "not_checked", missing(item), None


def _contest(item: Judgement, explanation: Explanation) -> str:
    rivals = sorted({code for row in explanation.undecided for code in row.codes} - {item.code.code})
    if not rivals:
        return f"it fits, and so does {explanation.initiating[0].code.code}" if explanation.initiating else "it fits"
    return f"it fits as well as {', '.join(rivals)}; nothing decides between them"


def _first(item: Judgement, *, is_true: bool) -> Observation | None:
    """Return the weightiest observation that speaks for it, or against it; what is merely required speaks for none."""
    rows = [
        row
        for row in item.observations
        if (row.answer.is_true and row.weight is not Weight.REQUIRES if is_true else row.answer.is_false)
    ]
    return min(rows, key=lambda row: row.weight is not Weight.PROVES, default=None)


def _unproven(item: Judgement) -> str:
    """Return what is not known of it and would prove it, else what it needs."""
    unknown = [row for row in item.observations if not row.answer.is_true and not row.answer.is_false]
    unknown.sort(key=lambda row: row.weight is not Weight.PROVES)
    return unknown[0].answer.text if unknown else "its signs come from one kind of source only"
