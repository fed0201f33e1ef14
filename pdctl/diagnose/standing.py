"""What dumps of the ranks show, and whether one dump is enough."""

from __future__ import annotations

from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.ranks import Stand, stand_of
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import ProcessStack


def stands(view: InstanceView) -> tuple[Stand | None, Stand | None]:
    """Return how the ranks stand in the dump and in the earlier one."""
    return stand_of(view.raw.stacks), stand_of(view.raw.stacks_prev)


def silent_s(view: InstanceView) -> float | None:
    """Return for how long it printed no step, though it had before."""
    return view.age_s(view.last_step.at if view.last_step else None)


def is_standing_still(case: Case, view: InstanceView) -> bool:
    """Return whether anything but the stacks shows that it stopped: then one dump is enough."""
    if case.symptom_of(view, Symptom.STALLED, Symptom.SUSPECTED) or view.events(Event.WATCHDOG):
        return True
    silence = silent_s(view)
    if silence is not None and silence >= LIMITS.silence_s:
        return True
    if view.health is not None and view.health != 200:
        return True
    return any(probe.timed_out for probe in case.probes)


def full_dumps(stacks: tuple[ProcessStack, ...]) -> tuple[ProcessStack, ...]:
    """Return the processes whose dump shows more than the main thread: only there absence tells something."""
    return tuple(process for process in stacks if len(process.threads) >= 3)


def threads_running(process: ProcessStack, *functions: str) -> int:
    """Return how many threads of a process run one of the functions (by frame, or by name where frames lack it)."""
    return sum(
        1
        for thread in process.threads
        if thread.has(*functions) or any(f"({function})" in thread.name for function in functions)
    )
