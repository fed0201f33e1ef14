"""PD0103: a rank is dead while its HTTP parent still answers."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place


def _parent_lives(case: Case, view: InstanceView) -> Answer:
    if view.is_alive is None:
        return unknown(f"nothing tells whether {view.name} lives")
    if view.is_alive is False:
        return no(f"{view.name} is gone as a whole", Kind.PROCESS)
    return yes(f"{view.name} answers", Kind.HTTP)


def _rank_dead(case: Case, view: InstanceView) -> Answer:
    place = Place(f"{view.name}/process.toml")
    states = [item for item in view.processes if item.state]
    if not states:
        return unknown(f"the processes of {view.name} are not known")
    dead = [item for item in states if item.state in ("gone", "Z")]
    if dead and len(dead) < len(states):
        return yes(
            f"{view.name}: {dead[0].label} is dead, {len(states) - len(dead)} others live",
            Kind.PROCESS,
            place,
            len(dead),
        )
    tp = view.raw.tp or 1
    ranks = [
        item
        for item in states
        if "scheduler" in item.label or "Worker" in item.label or "EngineCore" in item.label
    ]
    nodes = view.raw.nodes or 1
    if len(ranks) > 1 and nodes == 1 and len(ranks) < tp and "scheduler" in ranks[0].label:
        return yes(f"{view.name}: {len(ranks)} of {tp} ranks are there", Kind.PROCESS, place, len(ranks))
    helpers = [item for item in states if "detokenizer" in item.label]
    if helpers and not any("scheduler" in item.label for item in states):
        return yes(f"{view.name} has a detokenizer and no scheduler", Kind.PROCESS, place, 0)
    return no(f"{view.name}: all {len(states)} processes live", Kind.PROCESS, place, 0)


def _child_died(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.CHILD_DIED, Event.ENGINE_DIED)
    if not found:
        return unknown("no line of a dead child")
    return yes(f"{view.name}: {found[-1].text[:100]}", Kind.LOG, found[-1].place)


def _health_lies(case: Case, view: InstanceView) -> Answer:
    if view.health is None:
        return unknown(f"nobody asked the health of {view.name}")
    text = f"{view.name} answers {view.health} on its health endpoint"
    return yes(text, Kind.HTTP) if view.health == 200 else no(text, Kind.HTTP)


ANALYZER = Analyzer(
    code="PD0103",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.LOG, Kind.HTTP),
    explains=(*STALLS, *FAILURES, Symptom.CRASHED, Symptom.UNHEALTHY),
    checks=(
        requires("the parent lives", _parent_lives),
        requires("a rank is dead", _rank_dead),
        proves("a dead rank beside living processes", _rank_dead),
        suggests("it says that a child died", _child_died),
        suggests("health is good all the same", _health_lies),
    ),
)
