"""PD0103: a rank is dead while its HTTP parent still answers."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.predicates import says
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place, Process


def _parent_lives(case: Case, view: InstanceView) -> Answer:
    if view.is_alive is None:
        return unknown(f"nothing tells whether {view.name} lives")
    if view.is_alive is False:
        return no(f"{view.name} is gone as a whole", Kind.PROCESS)
    return yes(f"{view.name} answers", Kind.HTTP)


_RANKS = ("scheduler", "Worker", "EngineCore", "detokenizer")


def _is_rank(process: Process) -> bool:
    return bool(process.rank) or any(word in process.label for word in _RANKS)


def _dead_rank(case: Case, view: InstanceView) -> Answer:
    place = Place(f"{view.name}/process.toml")
    states = [item for item in view.processes if item.state]
    if not states:
        return unknown(f"the processes of {view.name} are not known")
    dead = [item for item in states if item.state in ("gone", "Z") and _is_rank(item)]
    if not dead or len(dead) == len(states):
        return no(f"{view.name}: none of {len(states)} processes is dead beside living ones", Kind.PROCESS, place, 0)
    text = f"{view.name}: {dead[0].label} is dead, {len(states) - len(dead)} others live"
    return yes(text, Kind.PROCESS, place, len(dead))


def _missing_rank(case: Case, view: InstanceView) -> Answer:
    """Fewer ranks are listed than there should be; a list made by hand may be short, so this only suggests."""
    place = Place(f"{view.name}/process.toml")
    alive = [item for item in view.processes if item.state not in (None, "gone", "Z")]
    schedulers = [item for item in alive if "scheduler" in item.label]
    should = view.raw.tp or 1
    if any("detokenizer" in item.label for item in alive) and len(schedulers) < (should if view.raw.nodes == 1 else 1):
        text = f"{view.name}: {len(schedulers)} of {should} schedulers are there"
        return yes(text, Kind.PROCESS, place, len(schedulers))
    return unknown("no rank is known to be missing")


def _own_rank_missing(case: Case, view: InstanceView) -> Answer:
    """Our API process waits for its ranks itself, so a dead one leaves no trace; which are there, their names say."""
    alive = [item for item in view.processes if item.state not in (None, "gone", "Z")]
    ranks = {item.rank for item in alive if "engine.scheduler" in item.label}
    should = view.raw.tp or 1
    if view.raw.dialect != "pdctl" or not ranks or len(ranks) >= should:
        return unknown("no rank of our own engine is known to be missing")
    text = f"{view.name}: of {should} ranks only {', '.join(sorted(ranks))} lives"
    return yes(text, Kind.PROCESS, Place(f"{view.name}/process.toml"), len(ranks))


def _dead_or_missing(case: Case, view: InstanceView) -> Answer:
    for answer in (_missing_rank(case, view), _own_rank_missing(case, view)):
        if answer.is_true:
            return answer
    return _dead_rank(case, view)


def _health_lies(case: Case, view: InstanceView) -> Answer:
    if view.health is None:
        return unknown(f"nobody asked the health of {view.name}")
    text = f"{view.name} answers {view.health} on its health endpoint"
    return yes(text, Kind.HTTP) if view.health == 200 else no(text, Kind.HTTP)


ANALYZER = Analyzer(
    code="PD0103",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.PROCESS, Kind.LOG, Kind.HTTP),
    explains=(*STALLS, *FAILURES, Symptom.CRASHED, Symptom.UNHEALTHY),
    checks=(
        requires("the parent lives", _parent_lives),
        requires("a rank is dead or missing", _dead_or_missing),
        proves("a dead rank beside living processes", _dead_rank),
        proves("a rank of our own engine is not there", _own_rank_missing),
        suggests("a rank is missing", _missing_rank),
        suggests(
            "it says that a child died",
            says(Event.CHILD_DIED, Event.ENGINE_DIED, otherwise="no line of a dead child"),
        ),
        suggests("health is good all the same", _health_lies),
    ),
)
