"""Deaths that have a reason of their own are no plain deaths: the reason is looked for in one place."""

from __future__ import annotations

import signal as signals

from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place, Process

CRASH_SIGNALS = tuple(
    int(item) for item in (signals.SIGSEGV, signals.SIGABRT, signals.SIGBUS, signals.SIGILL, signals.SIGFPE)
)
REASONS = (
    Event.FATAL_SIGNAL,
    Event.KERNEL_OOM,
    Event.GPU_OOM,
    Event.XID,
    Event.MISMATCH,
    Event.REGISTRY_UNREACHABLE,
    Event.WRONG_PEER,
    Event.COLLECTIVE_MISMATCH,
)


def crash_signal(process: Process) -> int | None:
    """Return the crash signal that ended a process (as signal, negative or 128+n exit code)."""
    code = process.exit_code or 0
    number = process.signal or (-code if code < 0 else code - 128 if 128 < code < 160 else 0)
    return number if number in CRASH_SIGNALS else None


def reason(case: Case, view: InstanceView) -> Occurrence | Process | None:
    """Return what ended an instance, where that has a finding of its own."""
    for process in view.raw.processes:
        if process.oom_killed or crash_signal(process):
            return process
    found = view.events(*REASONS)
    # A watchdog ends its own process: that it did is the reason, why it did another finding's business.
    return next(iter(found), None) or (view.events(Event.WATCHDOG)[-1] if view.events(Event.WATCHDOG) else None)


def no_reason(case: Case, view: InstanceView) -> Answer:
    """Ask that its end has no other finding: an exception that is not explained, a stop from outside, or nothing."""
    found = reason(case, view)
    if found is None:
        return yes(f"{view.name}: nothing else explains its end", Kind.LOG)
    text = (
        found.text[:100]
        if isinstance(found, Occurrence)
        else f"{found.label} ended by {found.signal or found.exit_code}"
    )
    place = found.place if isinstance(found, Occurrence) else Place(f"{view.name}/process.toml")
    return no(f"{view.name} ended for a reason of its own: {text}", Kind.LOG, place)


def gone(case: Case, view: InstanceView) -> Answer:
    """Ask whether no process is left or nobody listens."""
    place = Place(f"{view.name}/process.toml")
    if view.is_gone:
        ended = f" ({view.ended.text[:80]})" if view.ended else ""
        return yes(f"no process of {view.name} is left{ended}", Kind.PROCESS, place)
    if view.is_gone is False and any(item.status is not None for item in view.raw.gets):
        return no(f"{view.name} has processes, and answers", Kind.HTTP, place)
    if view.is_gone is False:
        return no(f"{view.name} has processes", Kind.PROCESS, place)
    if view.is_refusing and not view.has_log and view.is_gone is None:
        return unknown(f"nobody listens on the port of {view.name}; whether it is starting is not known")
    if view.is_refusing:
        return yes(f"nobody listens on the port of {view.name}", Kind.HTTP, Place(f"{view.name}/http.toml"))
    if any(item.status is not None for item in view.raw.gets):
        return no(f"{view.name} answers", Kind.HTTP, Place(f"{view.name}/http.toml"))
    if view.ended is not None:
        return yes(f"{view.name} printed its end: {view.ended.text[:80]}", Kind.LOG, view.ended.place)
    return unknown(f"neither processes nor answers of {view.name} are known")


def not_starting(case: Case, view: InstanceView) -> Answer:
    """Ask that it does not load or compile right now."""
    if view.is_starting:
        return no(f"{view.name} is still starting", Kind.LOG)
    return yes(f"{view.name} is not starting", Kind.LOG) if view.is_starting is False else unknown("no start-up lines")
