"""PD0312: the transfer library crashed its process."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.crash_signs import EXPLAINS, place
from pdctl.diagnose.causes.processes import crash_signal
from pdctl.diagnose.predicates import said_last
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def _crashed(case: Case, view: InstanceView) -> Answer:
    for process in view.raw.processes:
        number = crash_signal(process)
        if number:
            return yes(
                f"{process.label} of {view.name} was ended by signal {number}",
                Kind.PROCESS,
                place(view),
                number,
            )
    found = view.end_events(Event.FATAL_SIGNAL)
    if found:
        return yes(f"{view.name}: {found[-1].text[:90]}", Kind.LOG, found[-1].place)
    known = [item for item in view.processes if item.state]
    if known and view.has_log and all(item.state not in ("gone", "Z") for item in known) and view.restarts() == 0:
        return no(f"no process of {view.name} crashed", Kind.PROCESS, place(view))
    return unknown(f"nothing tells of a crash of {view.name}")


def _in_library(case: Case, view: InstanceView) -> Answer:
    frames = view.end_events(Event.NATIVE_FRAME)
    native = [
        frame.function
        for process in view.raw.native
        for thread in process.threads
        for frame in thread.frames
        if frame.function.startswith(("nixl", "ucp_", "uct_", "ucs_", "mooncake"))
    ]
    if frames and (crashed := _crashed(case, view)).is_true:
        return yes(f"{crashed.text}; in {frames[0].group('function')}", Kind.LOG, frames[0].place)
    if native and _crashed(case, view).is_true:
        return yes(f"{view.name} crashed in {native[0]}", Kind.STACKS)
    return unknown("no frame of a transfer library in a crash report")


ANALYZER = Analyzer(
    code="PD0312",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.LOG, Kind.STACKS),
    explains=EXPLAINS,
    checks=(
        requires("a process crashed", _crashed),
        proves("a transfer library's frame in the crash report", _in_library),
        suggests("a process ended by a crash signal", _crashed),
        suggests(
            "a transport error came before",
            said_last(Event.TRANSPORT_ERROR, otherwise="no transport error before it"),
        ),
    ),
)
