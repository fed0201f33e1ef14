"""Signs that the engines work."""

from __future__ import annotations

from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter

TROUBLE = (
    Symptom.STALLED, Symptom.STUCK_SUBSET, Symptom.LEAK, Symptom.WRONG_OUTPUT, Symptom.GONE, Symptom.STOPPED,
    Symptom.FAILING, Symptom.ORPHANED, Symptom.BYPASSED, Symptom.UNEVEN,
)  # fmt: skip


def no_trouble(case: Case, view: InstanceView) -> Answer:
    # An endpoint that does not answer may belong to a busy engine: it is looked at below.
    troubles = (item for item in case.symptoms if item.symptom in TROUBLE and item.unit != "http")
    trouble = next(troubles, None)
    if trouble is not None:
        return no(trouble.text, Kind.METRICS, trouble.place)
    level = next(
        (item for item in case.symptoms if item.symptom is Symptom.SUSPECTED and item.unit == "transfer"),
        None,
    )
    if level is not None:
        return unknown(level.text)
    hung = next((one for one in case.engines if one.is_hanging and not _has_fresh_step(one)), None)
    if hung is not None:
        return unknown(f"{hung.name} accepts connections and answers nothing")
    silent = next((one for one in case.engines if one.lost_its_metrics), None)
    if silent is not None:
        return unknown(f"{silent.name} gave its metrics in the earlier sample and not in this one")
    doubtful = case.doubtful_router
    if doubtful is not None:
        return unknown(doubtful.text)
    failed = next(
        (rise for one in case.engines if (rise := one.rise(Counter.TRANSFERS_FAILED)) and rise.value > 0),
        None,
    )
    if failed is not None:
        return no(f"{failed.value:g} transfers failed meanwhile", Kind.METRICS, failed.place, failed.value)
    return yes("nothing stands still, leaks or fails", Kind.METRICS)


def _has_fresh_step(view: InstanceView) -> bool:
    age = view.age_s(view.last_step.at if view.last_step else None)
    return age is not None and age <= LIMITS.patience_s


def batches_go_on(case: Case, view: InstanceView) -> Answer:
    steps = view.rise(Counter.STEPS) or view.rise(Counter.DECODE_TOKENS) or view.rise(Counter.PREFILL_TOKENS)
    age = view.age_s(view.last_step.at if view.last_step else None)
    if age is not None and age <= LIMITS.silence_s:
        return yes(
            f"{view.name} printed a step {age:.0f} s before the capture",
            Kind.LOG,
            view.last_step.place if view.last_step else None,
            age,
            "s",
        )
    if steps is not None and steps.value > 0:
        return yes(f"{view.name} made steps between the samples", Kind.METRICS, steps.place, steps.value)
    return unknown(f"no fresh step of {view.name} is known")
