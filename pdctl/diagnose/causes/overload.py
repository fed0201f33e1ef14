"""PD0901: it is busy; queues are long and move."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    ENGINES,
    Analyzer,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.work_signs import batches_go_on, no_trouble
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Gauge


def _moves(case: Case, view: InstanceView) -> Answer:
    if case.is_moving is None:
        return unknown("nothing tells whether requests complete")
    return (yes if case.is_moving else no)(
        "requests complete" if case.is_moving else "no request completes", case.kind_of_moving
    )


def _queues_long(case: Case, view: InstanceView) -> Answer:
    queued = [item for item in case.symptoms if item.symptom is Symptom.QUEUED and item.instance == view.name]
    total = sum(item.value or 0 for item in queued)
    if queued and total >= 2:
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
        suggests("queues are long", _queues_long),
        suggests("requests complete", _moves),
        suggests("steps go on", batches_go_on),
    ),
)
