"""PD0805: the frontend waits for requests that no worker has."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.registries import EXPLAINS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge


def _nowhere(case: Case, view: InstanceView) -> Answer:
    front = view.gauge(Gauge.FRONT_INFLIGHT)
    if front is None:
        return unknown(f"requests in flight at {view.name} are not known")
    orphans = case.orphans(view)
    if orphans is None:
        return unknown("the workers' requests are not known, or they have them, or requests end")
    return yes(
        f"{orphans[0]:g} requests in flight at {view.name}, {orphans[1]:g} on the workers",
        Kind.METRICS,
        front.place,
        orphans[0],
    )


def _no_handler(case: Case, view: InstanceView) -> Answer:
    lines = [item for one in case.engines for item in one.events(Event.NO_HANDLER)]
    if lines:
        return yes(
            f"workers dropped {len(lines)} requests: {lines[-1].text[:80]}",
            Kind.LOG,
            lines[-1].place,
            len(lines),
        )
    return unknown("no worker says that it dropped a request")


ANALYZER = Analyzer(
    code="PD0805",
    roles=("router",),
    inputs=(Kind.METRICS, Kind.LOG),
    explains=EXPLAINS,
    checks=(
        proves("requests that no worker has", _nowhere),
        suggests("workers dropped requests", _no_handler),
    ),
)
