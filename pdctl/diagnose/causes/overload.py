"""PD0901: it is busy; queues are long and move."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    ENGINES,
    Analyzer,
    proves,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.work_signs import batches_go_on, no_trouble
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import kv_usage, level
from pdctl.diagnose.symptoms import BEFORE_WORK, Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Gauge


def _moves(case: Case, view: InstanceView) -> Answer:
    if case.is_moving is None:
        return unknown("nothing tells whether requests complete")
    return (yes if case.is_moving else no)(
        "requests complete" if case.is_moving else "no request completes", case.kind_of_moving
    )


def _queues_long(case: Case, view: InstanceView) -> Answer:
    queued = [item for item in case.symptoms if item.symptom is Symptom.QUEUED and item.instance == view.name]
    total = sum(item.value or 0 for item in queued)
    if queued and total >= LIMITS.long_queue:
        is_log = queued[0].place is not None and "/log" in queued[0].place.file
        return yes(queued[0].text, Kind.LOG if is_log else Kind.METRICS, queued[0].place, total)
    running = view.gauge(Gauge.RUNNING)
    if case.symptom_of(view, Symptom.UNHEALTHY) and running is not None and running.value > 0:
        return yes(
            f"{view.name} runs {running.value:g} requests and answers its health check late",
            Kind.METRICS,
            running.place,
            running.value,
        )
    return unknown(f"{view.name} has no long queue")


def _late(case: Case, view: InstanceView) -> Answer:
    """Ask whether those whose first token came between the samples had waited long for it."""
    for one in case.views:
        count, seconds = one.rise(Counter.FIRST_TOKENS), one.rise(Counter.FIRST_TOKEN_SECONDS)
        if count is None or seconds is None or count.value == 0:
            continue
        mean = seconds.value / count.value
        if mean >= LIMITS.late_first_token_s:
            text = f"{one.name}: the first token of {count.value:g} requests came after {mean:.0f} s on average"
            return yes(text, Kind.METRICS, seconds.place, mean, "s")
    return unknown("no first token is known to come late")


def _late_probe(case: Case, view: InstanceView) -> Answer:
    """A request of ours got through, after a long wait."""
    slow = [probe for probe in case.probes if probe.passed and (probe.took_ms or 0) >= 1000 * LIMITS.patience_s]
    if slow:
        seconds = (slow[-1].took_ms or 0) / 1000
        return yes(f"a probe got through after {seconds:.0f} s", Kind.PROBE, value=seconds, unit="s")
    return unknown("no probe got through late")


def _served_from_a_queue(case: Case, view: InstanceView) -> Answer:
    """The queue is long in both samples, its requests are served late, and running ones account for the memory."""
    late, long = _late(case, view), _queues_long(case, view)
    before = [view.gauge_before(gauge) for gauge in BEFORE_WORK]
    if not late.is_true or not long.is_true or not case.is_moving:
        return unknown(late.text if not late.is_true else long.text)
    if sum(reading.value for reading in before if reading) < LIMITS.long_queue:
        return unknown(f"{view.name} had no long queue in the earlier sample")
    usage, running = kv_usage(view), level(view, Gauge.RUNNING)
    if usage is not None and usage[0] >= LIMITS.kv_full and (running or 0.0) < LIMITS.full_by_requests:
        return unknown(f"KV of {view.name} is full though {running or 0:g} run: memory may be held by nobody")
    return yes(f"{long.text}; {late.text}", Kind.METRICS, late.place, late.value, late.unit)


ANALYZER = Analyzer(
    code="PD0901",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.METRICS, Kind.LOG, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(
        Symptom.QUEUED,
        Symptom.UNHEALTHY,
        Symptom.CLIENTS_LEFT,
        Symptom.REFUSED,
        Symptom.SUSPECTED,
        Symptom.PROBE_FAILED,
    ),
    checks=(
        requires("requests complete", _moves),
        requires("nothing is in trouble", no_trouble),
        requires("queues are long", _queues_long),
        proves("a long queue is served, late", _served_from_a_queue),
        suggests("queues are long", _queues_long),
        suggests("requests complete", _moves),
        suggests("steps go on", batches_go_on),
        suggests("a probe got through late", _late_probe),
    ),
)
