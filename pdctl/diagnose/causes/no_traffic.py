"""PD0907: nothing is wrong; there is no traffic."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    ENGINES,
    Analyzer,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.work_signs import no_trouble
from pdctl.diagnose.hidden import is_idle
from pdctl.diagnose.view import InstanceView


def _all_idle(case: Case, view: InstanceView) -> Answer:
    states = [is_idle(one) for one in case.engines]
    if states and all(states):
        return yes("every queue is empty", Kind.METRICS, value=0)
    return no("queues hold requests", Kind.METRICS) if False in states else unknown("the queues are not known")


def _probe_passed(case: Case, view: InstanceView) -> Answer:
    probe = case.last_probe
    if probe is None:
        return unknown("the path is not proven: no probe was sent")
    return (yes if probe.passed else no)(
        f"the probe {'passed' if probe.passed else 'failed'}", Kind.PROBE, value=probe.took_ms, unit="ms"
    )


ANALYZER = Analyzer(
    code="PD0907",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.METRICS, Kind.PROBE, Kind.LOG, Kind.HTTP, Kind.PROCESS),
    explains=(),
    checks=(
        requires("every queue is empty", _all_idle),
        requires("the probe passed", _probe_passed),
        requires("nothing is in trouble", no_trouble),
        suggests("every queue is empty", _all_idle),
        suggests("the probe passed", _probe_passed),
    ),
)
