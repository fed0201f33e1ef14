"""PD0902, PD0903: it still loads, compiles or warms up."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    DEATHS,
    ENGINES,
    FAILURES,
    STALLS,
    Analyzer,
    proves,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event


def _starting(case: Case, view: InstanceView) -> Answer:
    if view.is_starting is None:
        return unknown(f"no start-up lines of {view.name}")
    if not view.is_starting:
        done = view.total(Counter.REQUESTS_DONE)
        if len(view.works) > 2 or (done is not None and done.value > LIMITS.failing_completions):
            return no(f"{view.name} has started, and worked", Kind.LOG)
        return unknown(f"{view.name} has started; whether it still warms up is not known")
    silence = view.age_s(view.log_ends_at)
    if silence is not None and silence > LIMITS.slow_load_s and not _in_disk_wait(view):
        return unknown(f"{view.name} is starting, and silent for {silence:.0f} s")
    if (pause := _stands_s(view)) is not None:
        return unknown(f"{view.name} is starting, and made no headway for {pause:.0f} s")
    return yes(f"{view.name} loads, compiles or warms up", Kind.LOG, value=view.age_of_process_s, unit="s")


def _stands_s(view: InstanceView) -> float | None:
    """Return for how long its start makes no headway, where that is too long for one and no process waits for the disk.

    Only a line of the start itself is headway: a server that waits for its leader goes on answering health checks.
    """
    marks = view.events(Event.STARTED, Event.LOADING, Event.LOADED, Event.COMPILING)
    pause = view.age_s(marks[-1].at) if marks else None
    return pause if pause is not None and pause > LIMITS.startup_s and not _in_disk_wait(view) else None


def _in_disk_wait(view: InstanceView) -> bool:
    return any(item.state == "D" for item in view.processes)


def _is_loading_weights(view: InstanceView) -> bool:
    marks = view.events(Event.LOADING, Event.LOADED, Event.COMPILING)
    return bool(marks) and marks[-1].event is Event.LOADING


def _young(case: Case, view: InstanceView) -> Answer:
    age = view.age_of_process_s
    if age is None:
        return unknown(f"the age of {view.name} is not known")
    text = f"{view.name} lives {age / 60:.0f} min"
    return (yes if age < LIMITS.startup_s else no)(text, Kind.PROCESS, value=age, unit="s")


def _nothing_done_yet(case: Case, view: InstanceView) -> Answer:
    done = view.total(Counter.REQUESTS_DONE)
    if done is not None:
        return (yes if done.value == 0 else no)(
            f"{view.name} has completed {done.value:g} requests", Kind.METRICS, done.place, done.value
        )
    return unknown(f"completions of {view.name} are not known")


COLD = Analyzer(
    code="PD0902",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.PROCESS, Kind.METRICS, Kind.HTTP),
    explains=(*STALLS, *FAILURES, *DEATHS, Symptom.STARTING, Symptom.UNHEALTHY),
    checks=(
        requires("it is starting", _starting),
        proves("its newest lines load or compile", _starting),
        suggests("it is young", _young),
        suggests("it has completed nothing", _nothing_done_yet),
    ),
)


def _loads_long(case: Case, view: InstanceView) -> Answer:
    if not view.is_starting or not _is_loading_weights(view):
        return unknown(f"{view.name} loads no weights")
    if (pause := _stands_s(view)) is not None:
        return unknown(f"{view.name} began to load, and made no headway for {pause:.0f} s")
    first = next(iter(view.events(Event.LOADING)), None)
    age = view.age_s(first.at if first else None)
    if _in_disk_wait(view) or (age is not None and age >= LIMITS.slow_load_s):
        disk = ", its processes wait for the disk (state D)" if _in_disk_wait(view) else ""
        return yes(
            f"{view.name} has loaded weights for {age or 0:.0f} s{disk}",
            Kind.LOG,
            first.place if first else None,
            age,
            "s",
        )
    return unknown("it has not loaded for long")


SLOW_LOAD = Analyzer(
    code="PD0903",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.PROCESS),
    explains=(*STALLS, *FAILURES, *DEATHS, Symptom.STARTING, Symptom.UNHEALTHY),
    checks=(proves("it loads weights for long", _loads_long),),
)

ANALYZERS = (COLD, SLOW_LOAD)
