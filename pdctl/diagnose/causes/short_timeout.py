"""PD0905: a configured timeout is shorter than the work."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    ENGINES,
    FAILURES,
    STALLS,
    Analyzer,
    proves,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.bursts import quantised, room_failures
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.work_signs import batches_go_on
from pdctl.diagnose.events import number_of
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.rooms import cut_short
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place


def _ends_by_setting(case: Case, view: InstanceView) -> Answer:
    lines = view.events(Event.TRANSFER_DEADLINE)
    quantum = quantised(lines)
    if quantum is None:
        return unknown("no series of transfers ended by one clock")
    return yes(
        f"{quantum[1]} transfers of {view.name} ended exactly {quantum[0]:.0f} s after they began",
        Kind.LOG,
        lines[-1].place,
        quantum[0],
        "s",
    )


def _ends_by_own_deadline(case: Case, view: InstanceView) -> Answer:
    """Our engine says of each request that it ended at the deadline it was given."""
    cut = cut_short(view)
    if cut is None:
        return unknown(f"{view.name} ended no requests at its deadline")
    return yes(cut.text, Kind.HTTP, Place(f"{view.name}/rooms.recent.json"), cut.count, "requests")


def _short_setting(case: Case, view: InstanceView) -> Answer:
    source = view.raw.source
    for key, value in (source.env if source else {}).items():
        if "TIMEOUT" not in key.upper():
            continue
        seconds = _seconds_of(key, value)
        if seconds is not None and seconds < 300 and _near(view, seconds):
            return yes(
                f"{view.name} has {key}={value}, and requests end after it",
                Kind.SOURCE,
                Place(f"{view.name}/source.toml", pointer=key),
                seconds,
                "s",
            )
    return unknown("no timeout that was set fits the ends")


def _seconds_of(key: str, value: str) -> float | None:
    """Return a setting as seconds; its name tells where it is milliseconds. None for what is no number."""
    number = number_of(value)
    return None if number is None else number / (1000 if key.upper().endswith("_MS") else 1)


def _near(view: InstanceView, seconds: float) -> bool:
    quantum = quantised((*view.events(Event.TRANSFER_DEADLINE), *room_failures(view, "timed out")))
    return quantum is not None and abs(quantum[0] - seconds) <= LIMITS.quantum_tolerance_s * 2


def _router_gives_up(case: Case, view: InstanceView) -> Answer:
    """Requests fail at the router after one and the same time."""
    for router in case.routers:
        failed = tuple(item for item in router.events(Event.ACCESS) if item.group("status").startswith("5"))
        quantum = quantised(failed)
        if quantum is not None and quantum[0] >= LIMITS.patience_s:
            return yes(
                f"{quantum[1]} requests failed at {router.name} after {quantum[0]:.0f} s each",
                Kind.LOG,
                failed[-1].place,
                quantum[0],
                "s",
            )
    return unknown("no series of requests fails at a router after one time")


def _steps_go_on(case: Case, view: InstanceView) -> Answer:
    for one in case.engines:
        answer = batches_go_on(case, one)
        if answer.is_true:
            return answer
    return unknown("no fresh step is known")


ANALYZER = Analyzer(
    code="PD0905",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.SOURCE, Kind.METRICS, Kind.HTTP),
    explains=(*FAILURES, *STALLS, Symptom.CLIENTS_LEFT),
    checks=(
        requires("steps go on", _steps_go_on),
        proves("transfers end by a configured clock", _ends_by_setting),
        proves("requests end by the engine's own deadline", _ends_by_own_deadline),
        suggests("a timeout that was set fits the ends", _short_setting),
        suggests("requests fail at the router after one time", _router_gives_up),
        suggests("steps go on", _steps_go_on),
    ),
)
