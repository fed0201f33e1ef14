"""What dumps of the ranks show, and whether one dump is enough."""

from __future__ import annotations

from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.ranks import Split, Stand, schedulers, stand_of
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import ProcessStack


def stands(view: InstanceView) -> tuple[Stand | None, Stand | None]:
    """Return how the ranks stand in the dump and in the earlier one."""
    return _stand(view, view.raw.stacks), _stand(view, view.raw.stacks_prev)


def _stand(view: InstanceView, stacks: tuple[ProcessStack, ...]) -> Stand | None:
    """Return how the ranks stand that must keep step. Data-parallel replicas need not, without DP attention."""
    replicas = _replicas(view, stacks)
    found = [stand for replica in replicas if (stand := stand_of(replica)) is not None]
    apart = [stand for stand in found if stand.split in (Split.CONTROL, Split.FORWARD)]
    return next(iter(apart or found), None)


def _replicas(view: InstanceView, stacks: tuple[ProcessStack, ...]) -> list[tuple[ProcessStack, ...]]:
    ranks = [(process, _replica_of(process)) for process in stacks]
    names = sorted({name for _, name in ranks if name})
    keeps_step = view.raw.source is not None and view.raw.source.flag("--enable-dp-attention") is not None
    if len(names) < 2 or keeps_step:
        return [stacks]
    return [tuple(process for process, own in ranks if own == name) for name in names]


def _replica_of(process: ProcessStack) -> str:
    return next((part for part in process.title.split("_") if part[:2] == "DP" and part[2:].isdigit()), "")


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
    """Return the ranks whose dump shows more than the main thread: only there absence tells something."""
    return tuple(process for process in schedulers(stacks) if len(process.threads) >= 3)


def threads_running(process: ProcessStack, *functions: str) -> int:
    """Return how many threads of a process run one of the functions (by frame, or by name where frames lack it)."""
    return sum(
        1
        for thread in process.threads
        if thread.has(*functions) or any(f"({function})" in thread.name for function in functions)
    )
