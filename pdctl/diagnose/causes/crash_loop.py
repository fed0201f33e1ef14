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

_DEATHS = (Event.ENGINE_DIED, Event.CHILD_DIED, Event.FATAL_SIGNAL, Event.LIVENESS_KILLED)
_ORDERLY = (0, 143)
"""Exit codes of a process that was told to end, and did."""


def _restarts(case: Case, view: InstanceView) -> Answer:
    known = [item.restarts for item in view.processes if item.restarts is not None]
    place = Place(f"{view.name}/process.toml")
    if known and max(known) >= LIMITS.crash_restarts:
        return yes(f"{view.name} was restarted {max(known)} times", Kind.PROCESS, place, max(known))
    back_off = view.end_events(Event.BACK_OFF)
    if back_off:
        return yes(f"{view.name}: its manager backs off restarting it", Kind.LOG, back_off[-1].place)
    starts = _starts(view)
    if starts >= LIMITS.crash_starts:
        return yes(f"{view.name} began {starts} times in one log", Kind.LOG, value=starts)
    if known:
        return no(f"{view.name} was restarted {max(known)} times", Kind.PROCESS, place, max(known))
    return unknown(f"restarts of {view.name} are not known")


def _dies(case: Case, view: InstanceView) -> Answer:
    """Ask whether it dies each time: what ends in good order was ended, and a counter does not tell by whom."""
    restarts = _restarts(case, view)
    ends = view.end_events(*_DEATHS, Event.BACK_OFF)
    orderly = [item for item in view.processes if item.exit_code in _ORDERLY and item.restarts]
    if restarts.is_true and orderly and not ends and _starts(view) < LIMITS.crash_starts:
        return unknown(f"{restarts.text}, and ended in good order (exit code {orderly[0].exit_code}): why is not known")
    return restarts


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
    ran = view.last_run_s
    if ran is not None and ran >= LIMITS.startup_s and (view.is_gone or (view.is_alive and not view.ended)):
        return no(f"the last run of {view.name} took {ran / 60:.0f} min", Kind.PROCESS, value=ran, unit="s")
    ends = view.end_events(*_DEATHS, Event.TERMINATED)
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
        proves("it dies each time", _dies),
        suggests("it ended recently", _fresh_death),
    ),
)
