"""PD0602: the watchdog killed a step that was only slow."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.crash_signs import EXPLAINS
from pdctl.diagnose.standing import stands
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place


def _watchdog(case: Case, view: InstanceView) -> Answer:
    found = view.end_events(Event.WATCHDOG)
    if found:
        return yes(f"{view.name}: {found[-1].text[:100]}", Kind.LOG, found[-1].place, len(found))
    if view.has_log and not view.raw.log_truncated:
        return no(f"no watchdog fired on {view.name}", Kind.LOG)
    return unknown(f"no complete log of {view.name}")


def _compiled_before(case: Case, view: InstanceView) -> Answer:
    found = view.end_events(Event.COMPILING)
    dog = view.end_events(Event.WATCHDOG)
    if not found or not dog or not found[-1].at or not dog[-1].at:
        return unknown("nothing was compiled")
    gap = (dog[-1].at - found[-1].at).total_seconds()
    ready = [item for item in view.end_events(Event.READY) if item.at and found[-1].at <= item.at <= dog[-1].at]
    if 0 <= gap <= 900 and not ready:
        return yes(f"{view.name} compiled {gap:.0f} s before the watchdog", Kind.LOG, found[-1].place, gap, "s")
    return unknown("nothing was compiled right before")


def _in_kernel(case: Case, view: InstanceView) -> Answer:
    now, _ = stands(view)
    if now is None:
        return unknown(f"no stacks of {view.name}")
    loading = (
        "cuModuleLoadData",
        "cuLibraryGetModule",
        "load_binary",
        "compile",
        "_init_handles",
        "nvrtc",
        "jit",
    )
    if any(frame.function in loading for group in now.groups for frame in group.thread.frames):
        return yes(f"ranks of {view.name} load or compile a kernel: {now.text()}", Kind.STACKS, now.groups[0].place)
    return unknown("the ranks compile nothing")


def _compiles_by_flag(case: Case, view: InstanceView) -> Answer:
    flags = view.raw.source.flags if view.raw.source else ()
    found = [flag for flag in flags if "torch-compile" in flag or "compilation-config" in flag or "jit" in flag.lower()]
    if found:
        return yes(f"{view.name} compiles at run time ({found[0]})", Kind.SOURCE, Place(f"{view.name}/source.toml"))
    return unknown("no flag that compiles at run time is known")


def _first_batch(case: Case, view: InstanceView) -> Answer:
    """The watchdog fired on one of the first batches after the start."""
    dog = view.end_events(Event.WATCHDOG)
    start = [item for item in view.end_events(Event.STARTED) if dog and item.at and dog[0].at and item.at < dog[0].at]
    if not dog or not start:
        return unknown("no start before a watchdog is known")
    steps = [
        item
        for item in view.all_works
        if item.at and start[-1].at and dog[0].at and start[-1].at <= item.at <= dog[0].at
    ]
    if len(steps) <= 2:
        return yes(f"the watchdog fired on batch {len(steps)} of {view.name}", Kind.LOG, dog[0].place, len(steps))
    return no(f"{view.name} had made {len(steps)} steps before the watchdog", Kind.LOG, dog[0].place, len(steps))


def _works_again(case: Case, view: InstanceView) -> Answer:
    """After the watchdog the same step went on: nothing was stuck."""
    dog = view.end_events(Event.WATCHDOG)
    after = [
        item for item in view.all_works if dog and item.is_step and item.at and dog[-1].at and item.at > dog[-1].at
    ]
    if after:
        return yes(f"{view.name} printed {len(after)} steps after the watchdog", Kind.LOG, after[0].place, len(after))
    return unknown("no step after the watchdog")


ANALYZER = Analyzer(
    code="PD0602",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.LOG, Kind.STACKS, Kind.SOURCE),
    explains=(*EXPLAINS,),
    checks=(
        requires("a watchdog fired", _watchdog),
        proves("steps went on after it", _works_again),
        suggests("a watchdog fired", _watchdog),
        suggests("it compiled right before", _compiled_before),
        suggests("it compiles at run time", _compiles_by_flag),
        suggests("it was one of the first batches", _first_batch),
        suggests("ranks load a kernel", _in_kernel),
    ),
)
