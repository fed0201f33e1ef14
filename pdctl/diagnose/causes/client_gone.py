"""PD0904: clients gave up; the engines work."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    EVERYONE,
    FAILURES,
    Analyzer,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.departures import departures
from pdctl.diagnose.symptoms import Symptom, is_busy
from pdctl.diagnose.view import InstanceView


def _clients_left(case: Case, view: InstanceView) -> Answer:
    found = departures(view)
    if found:
        return yes(
            f"{len(found)} clients left {view.name}: {found[-1].text[:90]}",
            Kind.LOG,
            found[-1].place,
            len(found),
        )
    return unknown(f"no clients are known to have left {view.name}")


def _engines_work(case: Case, view: InstanceView) -> Answer:
    if case.is_moving:
        return yes("the engines work", Kind.METRICS)
    if any(case.stepped_during(probe) for probe in case.probes):
        return yes("the engines worked while the probes waited", Kind.LOG)
    stall = next((item for item in case.symptoms if item.symptom is Symptom.STALLED), None)
    if stall is not None:
        # Also where an earlier stage is busy: a prefill computes for rooms that nobody reads.
        return no(stall.text, Kind.METRICS, stall.place)
    if any(is_busy(one) for one in case.engines):
        return yes("the engines work", Kind.METRICS)
    # An engine that nobody asks for anything stands still as well.
    return unknown("nothing tells whether the engines work")


def _probe_ran_out(case: Case, view: InstanceView) -> Answer:
    """A probe ran out of its own time while the last stage went on."""
    for probe in case.probes:
        if probe.timed_out and case.stepped_during(probe):
            seconds = (probe.timeout_ms or probe.took_ms or 0) / 1000
            return yes(
                f"a request gave up after {seconds:.0f} s while the engine worked on it",
                Kind.PROBE,
                value=seconds,
                unit="s",
            )
    return unknown("no probe ran out of time while the engine worked")


ANALYZER = Analyzer(
    code="PD0904",
    roles=EVERYONE,
    inputs=(Kind.LOG, Kind.METRICS, Kind.PROBE, Kind.HTTP, Kind.PROCESS, Kind.STACKS),
    explains=(Symptom.CLIENTS_LEFT, *FAILURES, Symptom.QUEUED, Symptom.SUSPECTED, Symptom.PROBE_TIMEOUT),
    checks=(
        requires("the engines work", _engines_work),
        suggests("clients left", _clients_left),
        suggests("a probe ran out of its own time", _probe_ran_out),
        suggests("the engines work", _engines_work),
    ),
)
