"""PD0102: an instance dies again and again."""

from __future__ import annotations

from pdctl.diagnose.analyzer import DEATHS, EVERYONE, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, either, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place


def _restarts(case: Case, view: InstanceView) -> Answer:
    known = [item.restarts for item in view.processes if item.restarts is not None]
    place = Place(f"{view.name}/process.toml")
    if known and max(known) >= LIMITS.crash_restarts:
        return yes(f"{view.name} was restarted {max(known)} times", Kind.PROCESS, place, max(known))
    back_off = view.end_events(Event.BACK_OFF)
    if back_off:
        return yes(f"{view.name}: its manager backs off restarting it", Kind.LOG, back_off[-1].place)
    starts = _starts(view)
    if starts >= 3:
        return yes(f"{view.name} began {starts} times in one log", Kind.LOG, value=starts)
    if known:
        return no(f"{view.name} was restarted {max(known)} times", Kind.PROCESS, place, max(known))
    return unknown(f"restarts of {view.name} are not known")


def _starts(view: InstanceView) -> int:
    """Count start-up runs that an end or work separates."""
    count, is_open = 0, False
    for item in view.end_events(Event.STARTED, Event.READY, Event.ENGINE_DIED, Event.TERMINATED, Event.CHILD_DIED):
        if item.event is Event.STARTED:
            count += 0 if is_open else 1
            is_open = True
        elif item.event is not Event.READY:
            is_open = False
    return count


def _fresh_death(case: Case, view: InstanceView) -> Answer:
    settled = view.age_of_process_s
    if settled is not None and settled >= LIMITS.startup_s and view.is_alive and not view.ended:
        return no(f"{view.name} has lived for {settled / 60:.0f} min", Kind.PROCESS, value=settled, unit="s")
    ends = view.end_events(
        Event.ENGINE_DIED, Event.CHILD_DIED, Event.FATAL_SIGNAL, Event.TERMINATED, Event.LIVENESS_KILLED
    )
    age = view.age_of_process_s
    young = (
        yes(f"{view.name} lives {age:.0f} s only", Kind.PROCESS, value=age, unit="s")
        if age is not None and age < LIMITS.startup_s
        else unknown("not young")
    )
    died = yes(f"{view.name}: {ends[-1].text[:90]}", Kind.LOG, ends[-1].place) if ends else unknown("no end in the log")
    return either(died, young)


ANALYZER = Analyzer(
    code="PD0102",
    roles=EVERYONE,
    inputs=(Kind.HTTP, Kind.PROCESS, Kind.LOG),
    explains=(*DEATHS, *FAILURES, *STALLS, Symptom.STARTING, Symptom.UNHEALTHY),
    checks=(
        requires("it was restarted more than once", _restarts),
        requires("the last end is fresh", _fresh_death),
        proves("restart counter, back-off or start-up lines", _restarts),
        suggests("it ended recently", _fresh_death),
    ),
)
