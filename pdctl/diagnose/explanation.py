"""Which causes stand: the firm ones that explain most, what follows from them, and where to abstain."""

from __future__ import annotations

import msgspec

from pdctl.diagnose.analyzer import Weight
from pdctl.diagnose.case import Case
from pdctl.diagnose.catalogue import reachable
from pdctl.diagnose.judgement import Judgement, Status
from pdctl.diagnose.symptoms import Observed


class Undecided(msgspec.Struct, frozen=True):
    """Causes between which the evidence does not decide."""

    codes: tuple[str, ...]
    check: str
    """The cheapest predicate that would separate them."""
    instance: str
    """Where to look."""


class Explanation(msgspec.Struct, frozen=True):
    """The outcome."""

    initiating: tuple[Judgement, ...]
    """Firm causes, best first."""
    cascade: tuple[Judgement, ...]
    """Firm causes that follow from those."""
    hypotheses: tuple[Judgement, ...]
    """Neither firm nor excluded, most likely first; firm ones that fell are among them."""
    undecided: tuple[Undecided, ...]


def explain(case: Case, judgements: tuple[Judgement, ...]) -> Explanation:
    """Choose greedily, as DIAGNOSIS 4 says."""
    firm = [item for item in judgements if item.is_firm]
    open_symptoms = set(range(len(case.symptoms)))
    chosen: list[Judgement] = []
    cascade: list[Judgement] = []
    while firm:
        best = min(firm, key=lambda item: _order(case, item, firm, open_symptoms))
        chosen.append(best)
        firm.remove(best)
        after = reachable(best.code.code)
        follows = [item for item in firm if item.code.code in after]
        cascade.extend(follows)
        firm = [item for item in firm if item not in follows]
        for item in (best, *follows):
            open_symptoms -= _covered(case, item)
        firm = [item for item in firm if _covered(case, item) & open_symptoms or _rivals(case, item, chosen)]
        rivals = [item for item in firm if _rivals(case, item, chosen)]
        if rivals:
            return _contest(judgements, chosen, rivals, cascade)
    return _outcome(judgements, chosen, cascade, ())


def _order(
    case: Case, item: Judgement, firm: list[Judgement], open_symptoms: set[int]
) -> tuple[int, int, int, int, str]:
    """Order: a cause of others before them, established before supported, more symptoms, more sources, lower code."""
    is_effect = any(
        item.code.code in reachable(other.code.code)
        for other in firm
        if other is not item and other.status is Status.ESTABLISHED
    )
    after = reachable(item.code.code)
    covered = _covered(case, item)
    for other in firm:
        if other.code.code in after:
            covered = covered | _covered(case, other)
    return (
        1 if is_effect and item.code.code not in _mutual(item, firm) else 0,
        0 if item.status is Status.ESTABLISHED else 1,
        -len(covered & open_symptoms),
        -item.kinds,
        item.code.code,
    )


def _mutual(item: Judgement, firm: list[Judgement]) -> frozenset[str]:
    """Return the code of a cause that leads to one of its own causes: neither is only an effect."""
    after = reachable(item.code.code)
    loops = any(
        other.code.code in after and item.code.code in reachable(other.code.code) for other in firm if other is not item
    )
    return frozenset({item.code.code}) if loops else frozenset()


def _covered(case: Case, item: Judgement) -> set[int]:
    return {index for index, observed in enumerate(case.symptoms) if _explains(item, observed)}


def _explains(item: Judgement, observed: Observed) -> bool:
    return observed.symptom in item.analyzer.explains


def _rivals(case: Case, item: Judgement, chosen: list[Judgement]) -> bool:
    """Return whether a cause claims, as firmly, a symptom that a chosen one explains and does not lead to it."""
    for other in chosen:
        is_as_firm = item.status is other.status
        shares = _covered(case, item) & _covered(case, other)
        is_linked = item.code.code in reachable(other.code.code) or other.code.code in reachable(item.code.code)
        is_elsewhere = not set(item.affected) & set(other.affected) and _is_local(item) and _is_local(other)
        if is_as_firm and shares and not is_linked and not is_elsewhere and item.code.label != other.code.label:
            return True
    return False


def _is_local(item: Judgement) -> bool:
    """Return whether a cause sits in one instance (two such causes in two instances do not contradict)."""
    return item.code.code.startswith(("PD01", "PD05", "PD06", "PD07"))


def _contest(
    judgements: tuple[Judgement, ...],
    chosen: list[Judgement],
    rivals: list[Judgement],
    cascade: list[Judgement],
) -> Explanation:
    """Two firm causes for one symptom: with one action both stay, else both fall and the report abstains."""
    contested = [item for item in chosen if any(item.status is rival.status for rival in rivals)]
    parties = (*contested, *rivals)
    undecided = Undecided(tuple(item.code.code for item in parties), _separator(parties), parties[0].instance)
    if len({item.code.action for item in parties}) == 1:
        return _outcome(judgements, [*chosen, *rivals], cascade, (undecided,))
    standing = [item for item in chosen if item not in parties]
    return _outcome(judgements, standing, [] if not standing else cascade, (undecided,))


def _separator(parties: tuple[Judgement, ...]) -> str:
    for item in parties:
        for observation in item.observations:
            if (
                observation.weight is not Weight.SUGGESTS
                and not observation.answer.is_true
                and not observation.answer.is_false
            ):
                return f"{item.code.code}: {observation.check} ({observation.answer.text})"
    return "inseparable by what pdctl can see"


def _outcome(
    judgements: tuple[Judgement, ...],
    chosen: list[Judgement],
    cascade: list[Judgement],
    undecided: tuple[Undecided, ...],
) -> Explanation:
    standing = {item.code.code for item in (*chosen, *cascade)}
    rest = [
        item
        for item in judgements
        if item.code.code not in standing and (item.is_firm or item.status is Status.HYPOTHESIS)
    ]
    rest.sort(key=lambda item: (0 if item.is_firm else 1, -_true(item), -item.kinds, item.code.code))
    return Explanation(tuple(chosen), tuple(cascade), tuple(rest), undecided)


def _true(item: Judgement) -> int:
    return sum(observation.answer.is_true for observation in item.observations)
