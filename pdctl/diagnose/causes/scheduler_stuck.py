"""PD0504: the scheduler has work and schedules nothing."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.rank_splits import EXPLAINS
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import kv_usage, level, outlasts_patience
from pdctl.diagnose.ranks import (
    is_in_collective,
    lock_wait,
)
from pdctl.diagnose.standing import is_standing_still, stands
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Gauge


def _loaded_and_still(case: Case, view: InstanceView) -> Answer:
    """KV has landed, nothing runs, no step happens for longer than one may take: the scheduler does not look."""
    done, running = view.gauge(Gauge.FETCH_DONE), view.gauge(Gauge.RUNNING)
    steps = view.rise(Counter.STEPS)
    if done is None or running is None or steps is None:
        return unknown(f"{view.name} does not tell of landed requests")
    text = f"{done.value:g} requests of {view.name} have their KV, {running.value:g} run, {steps.value:g} steps"
    before = view.gauge_before(Gauge.FETCH_DONE)
    if done.value > 0 and running.value == 0 and steps.value == 0 and before is not None and before.value > 0:
        if not outlasts_patience(case, view, Gauge.FETCH_DONE):
            return unknown(f"{text}; a step may be under way")
        return yes(text, Kind.METRICS, done.place, done.value)
    return no(text, Kind.METRICS, done.place, done.value)


def _lock(case: Case, view: InstanceView) -> Answer:
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None]
    if not dumps:
        return unknown(f"no stacks of {view.name}")
    waits = [
        [name for group in stand.groups if (name := lock_wait(group.thread)) and not is_in_collective(group.thread)]
        for stand in dumps
    ]
    if not all(waits):
        return no(f"no scheduler of {view.name} waits for a lock", Kind.STACKS, dumps[0].groups[0].place)
    if len(dumps) == 1 and not is_standing_still(case, view):
        return unknown("one dump of a moving engine proves nothing")
    return yes(f"a scheduler of {view.name} waits for a lock in {waits[0][0]}", Kind.STACKS, dumps[0].groups[0].place)


def _has_work(case: Case, view: InstanceView) -> Answer:
    usage = kv_usage(view)
    waiting, running = level(view, Gauge.WAITING), level(view, Gauge.RUNNING)
    steps = view.rise(Counter.STEPS)
    if waiting is None or steps is None:
        return unknown(f"queue and steps of {view.name} are not known")
    text = f"{waiting:g} wait on {view.name}, {running or 0:g} run, {steps.value:g} steps"
    if (
        waiting > 0
        and running == 0
        and steps.value == 0
        and usage is not None
        and LIMITS.gpu_idle_percent / 100 < usage[0] < LIMITS.kv_full
    ):
        return yes(text, Kind.METRICS, steps.place, waiting)
    return unknown(text)


ANALYZER = Analyzer(
    code="PD0504",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.STACKS, Kind.LOG, Kind.HTTP, Kind.PROBE, Kind.SOURCE),
    explains=EXPLAINS,
    checks=(
        proves("landed requests are never scheduled", _loaded_and_still),
        proves("a scheduler waits for a lock", _lock),
        suggests("it has work and room, and no step happens", _has_work),
    ),
)
