"""One word for the whole deployment."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from pdctl.diagnose.analyzer import Weight
from pdctl.diagnose.answer import Kind
from pdctl.diagnose.case import Case
from pdctl.diagnose.catalogue import Level
from pdctl.diagnose.explanation import Explanation
from pdctl.diagnose.judgement import Judgement
from pdctl.diagnose.symptoms import Observed, Symptom


class Verdict(StrEnum):
    WEDGED = "wedged"
    FAILING = "failing"
    DEGRADED = "degraded"
    NOT_A_WEDGE = "not_a_wedge"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


_STOPS = ("PD0501", "PD0502", "PD0503", "PD0601")
_STALLS = (Symptom.STALLED, Symptom.STUCK_SUBSET, Symptom.ORPHANED)


def verdict_of(case: Case, explanation: Explanation, suppressed: Collection[str] = ()) -> Verdict:
    """Return the first that fits, in the order of DIAGNOSIS 5.

    A suppressed cause makes nothing degraded; what stands still or fails under it is told all the same.
    """
    firm = [item for item in (*explanation.initiating, *explanation.cascade) if item.code.code not in suppressed]
    if _is_wedged(case, explanation):
        return Verdict.WEDGED
    if case.has(Symptom.FAILING) or (case.has(Symptom.PROBE_FAILED) and not case.is_moving):
        return Verdict.FAILING
    if any(item.code.level is Level.ERROR for item in firm):
        return Verdict.DEGRADED
    initiating = [item.code for item in firm if item in explanation.initiating]
    if any(code.code.startswith("PD09") and code.level is not Level.INFO for code in initiating):
        return Verdict.NOT_A_WEDGE
    is_troubled = case.has(*_STALLS, Symptom.GONE, Symptom.STOPPED, Symptom.WRONG_OUTPUT, Symptom.PROBE_TIMEOUT)
    is_proven = case.last_probe is not None and case.last_probe.passed
    is_troubled = is_troubled or (case.has(Symptom.SUSPECTED) and not is_proven)
    # What stands in a dump contradicts a step that was printed a moment ago; engines that went silent prove nothing.
    is_troubled = is_troubled or any(_shows_a_stop(item) for item in explanation.hypotheses)
    is_troubled = is_troubled or any(view.lost_its_metrics for view in case.engines)
    is_troubled = is_troubled or (is_proven and case.doubtful_router is not None)
    if case.is_moving and not is_troubled:
        return Verdict.HEALTHY
    return Verdict.UNKNOWN


def _is_wedged(case: Case, explanation: Explanation) -> bool:
    stalls = [
        item
        for item in case.symptoms
        if item.symptom in _STALLS
        and not _is_explained_away(item, explanation)
        and not _may_be_its_own_fault(item, explanation)
    ]
    if stalls:
        return True
    unanswered = [probe for probe in case.probes if probe.timed_out and not case.stepped_during(probe)]
    if unanswered and case.is_idle_or_still and not _is_all_explained_away(explanation):
        return True
    # A dump in which ranks wait for each other shows that a suspected stall is one.
    kinds = (Symptom.SUSPECTED, Symptom.CRASHED, Symptom.STARTING, Symptom.UNHEALTHY, Symptom.FAILURES)
    return case.has(*kinds) and any(_shows_a_stop(item) for item in explanation.initiating)


def _is_explained_away(observed: Observed, explanation: Explanation) -> bool:
    """Return whether a firm cause that is no wedge explains this stall."""
    return any(
        not item.code.is_wedge and observed.symptom in item.analyzer.explains for item in explanation.initiating
    ) and not any(item.code.is_wedge for item in explanation.initiating)


def _may_be_its_own_fault(observed: Observed, explanation: Explanation) -> bool:
    """Return whether one lone request waits that may fit nowhere: it tells nothing of other requests."""
    may_be_unservable = any(
        item.code.code == "PD0405" and item.instance == observed.instance for item in explanation.hypotheses
    )
    return observed.value == 1 and observed.unit == "waiting" and may_be_unservable


def _is_all_explained_away(explanation: Explanation) -> bool:
    return bool(explanation.initiating) and not any(item.code.is_wedge for item in explanation.initiating)


def _shows_a_stop(item: Judgement) -> bool:
    """Return whether stacks prove the cause: threads that stand, not lines that were printed."""
    is_stop = item.code.code in _STOPS
    proof = any(observation.weight is Weight.PROVES and observation.answer.is_true for observation in item.observations)
    on_stacks = any(
        observation.weight is Weight.PROVES and observation.answer.is_true and observation.answer.kind is Kind.STACKS
        for observation in item.observations
    )
    return item.code.is_wedge and (on_stacks or (is_stop and proof))
