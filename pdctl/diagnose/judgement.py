"""Every cause held against the case: status and observations."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdctl.diagnose.analyzer import Analyzer, Weight
from pdctl.diagnose.answer import Answer
from pdctl.diagnose.case import Case
from pdctl.diagnose.catalogue import Code, code_of
from pdctl.diagnose.view import InstanceView


class Status(StrEnum):
    """What became of a cause. The first that fits, in this order."""

    RULED_OUT = "ruled_out"
    ESTABLISHED = "established"
    SUPPORTED = "supported"
    HYPOTHESIS = "hypothesis"
    UNLIKELY = "unlikely"
    """Something speaks for it and something against it, or only against it."""
    NOT_CHECKED = "not_checked"


FIRM = (Status.ESTABLISHED, Status.SUPPORTED)
_RANK = {
    Status.ESTABLISHED: 0, Status.SUPPORTED: 1, Status.HYPOTHESIS: 2, Status.UNLIKELY: 3,
    Status.NOT_CHECKED: 4, Status.RULED_OUT: 5,
}  # fmt: skip


class Observation(msgspec.Struct, frozen=True):
    """One predicate and its answer."""

    weight: Weight
    check: str
    answer: Answer


class Judgement(msgspec.Struct, frozen=True):
    """One cause, for the instance it fits best."""

    code: Code
    analyzer: Analyzer
    status: Status
    instance: str
    affected: tuple[str, ...]
    """Every instance it fits as well."""
    observations: tuple[Observation, ...]

    @property
    def is_firm(self) -> bool:
        return self.status in FIRM

    @property
    def kinds(self) -> int:
        """Return how many kinds of sources speak for it."""
        return len({item.answer.kind for item in self.observations if item.answer.is_true})

    def against(self) -> Observation | None:
        """Return what rules it out."""
        return next(
            (item for item in self.observations if item.weight is Weight.REQUIRES and item.answer.is_false),
            None,
        )


def judge(case: Case, analyzers: tuple[Analyzer, ...]) -> tuple[Judgement, ...]:
    """Return one judgement a code, in the order of the analyzers."""
    return tuple(_judge_one(case, analyzer) for analyzer in analyzers)


def _judge_one(case: Case, analyzer: Analyzer) -> Judgement:
    code = code_of(analyzer.code)
    rows: list[tuple[Status, InstanceView, tuple[Observation, ...]]] = []
    for view in case.views:
        if view.role in analyzer.roles:
            observations = tuple(
                Observation(check.weight, check.name, check.ask(case, view)) for check in analyzer.checks
            )
            rows.append((_status(case, analyzer, observations), view, observations))
    if not rows:
        return Judgement(code, analyzer, Status.NOT_CHECKED, "", (), ())
    best = min(_RANK[row[0]] for row in rows)
    fitting = [row for row in rows if _RANK[row[0]] == best]
    status, view, observations = max(fitting, key=lambda row: sum(item.answer.is_true for item in row[2]))
    return Judgement(code, analyzer, status, view.name, tuple(row[1].name for row in fitting), observations)


def _status(case: Case, analyzer: Analyzer, observations: tuple[Observation, ...]) -> Status:
    needed = [item.answer for item in observations if item.weight is Weight.REQUIRES]
    proofs = [item.answer for item in observations if item.weight is Weight.PROVES]
    hints = [item.answer for item in observations if item.weight is Weight.SUGGESTS]
    if any(answer.is_false for answer in needed):
        return Status.RULED_OUT
    is_explaining = any(item.symptom in analyzer.explains for item in case.symptoms)
    if is_explaining and any(answer.is_true for answer in proofs):
        return Status.ESTABLISHED
    for_it = [answer for answer in hints if answer.is_true]
    against = [answer for answer in hints if answer.is_false]
    kinds = {answer.kind for answer in for_it}
    is_met = all(answer.is_true for answer in needed)
    is_backed = len(for_it) >= 2 and len(kinds) >= 2 and len(for_it) > len(against)
    if is_met and is_backed and (is_explaining or not analyzer.explains):
        return Status.SUPPORTED
    answers = [*proofs, *hints]
    if any(answer.is_true for answer in answers):
        return Status.HYPOTHESIS if not any(answer.is_false for answer in answers) else Status.UNLIKELY
    if any(answer.is_false for answer in answers):
        return Status.UNLIKELY
    return Status.NOT_CHECKED
