"""PD0906: a liveness probe kills a busy worker."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    DEATHS,
    ENGINES,
    Analyzer,
    proves,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.predicates import logged
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def _killed_by_probe(case: Case, view: InstanceView) -> Answer:
    killed = view.end_events(Event.LIVENESS_KILLED)
    if not killed:
        return unknown("no liveness probe killed it")
    before = [
        item
        for item in view.end_events(Event.COMPILING, Event.LOADING)
        if item.at and killed[0].at and 0 <= (killed[0].at - item.at).total_seconds() <= 600
    ]
    if before or view.works or view.all_works:
        return yes(f"{view.name} was busy when: {killed[0].text[:90]}", Kind.LOG, killed[0].place, len(killed))
    return unknown("it is not known to have been busy")


ANALYZER = Analyzer(
    code="PD0906",
    roles=ENGINES,
    inputs=(Kind.LOG,),
    explains=(*DEATHS, Symptom.UNHEALTHY, Symptom.STARTING),
    checks=(
        proves("a liveness probe killed a busy worker", _killed_by_probe),
        suggests(
            "liveness probes fail",
            lambda case, view: logged(view, Event.LIVENESS_FAILED, what="a failed liveness probe"),
        ),
    ),
)
