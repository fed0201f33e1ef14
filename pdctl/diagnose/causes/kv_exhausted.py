"""PD0401: KV memory is full and nothing frees it."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import (
    kv_usage,
    level,
    logged,
    outlasts_patience,
    stalled,
    unless_frozen,
)
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge

_WAITING = (Gauge.WAITING, Gauge.PREALLOC, Gauge.HTTP_ACTIVE)


def _full(case: Case, view: InstanceView) -> Answer:
    usage = kv_usage(view)
    if usage is None:
        return unknown(f"KV use of {view.name} is not known")
    text = f"KV of {view.name} is {usage[0]:.0%} used"
    answer = (yes if usage[0] >= LIMITS.kv_full else no)(text, usage[1], value=usage[0])
    return unless_frozen(answer, view, Gauge.KV_USAGE)


def _full_and_still(case: Case, view: InstanceView) -> Answer:
    full = _full(case, view)
    if not full.is_true:
        return unknown(full.text)
    running = level(view, Gauge.RUNNING)
    waits = stalled(case, view, *_WAITING)
    done = level(view, Gauge.FETCH_DONE)
    if waits.is_true and running == 0 and not done and outlasts_patience(case, view, *_WAITING):
        return yes(f"{full.text}, nothing runs, {waits.text}", full.kind or Kind.METRICS, waits.place, full.value)
    return unknown("something runs, loaded requests wait for the scheduler, or a step may be under way")


ANALYZER = Analyzer(
    code="PD0401",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.LOG, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*STALLS, *FAILURES, Symptom.QUEUED),
    checks=(
        requires("KV memory is full", _full),
        requires("requests stand still", lambda case, view: stalled(case, view, *_WAITING, Gauge.RUNNING)),
        proves("full, nothing runs, requests wait", _full_and_still),
        suggests("KV memory is full", _full),
        suggests(
            "requests are retracted",
            lambda case, view: logged(view, Event.RETRACTED, what="retraction for want of KV"),
        ),
    ),
)
