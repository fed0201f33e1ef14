"""PD0702, PD0703: a process was killed for memory, or the GPU ran out of it."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.crash_signs import EXPLAINS, place
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import said_last
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Process


def _killed(case: Case, view: InstanceView) -> Answer:
    for process in view.raw.processes:
        if process.oom_killed:
            return yes(f"{process.label} of {view.name} was killed for memory", Kind.PROCESS, place(view))
    for process in view.processes:
        if process.cgroup_oom_kills and process.restarts and _is_new_since_a_kill(view, process):
            text = f"{view.name} was restarted {process.restarts} times, after a kill for memory in its control group"
            return yes(text, Kind.PROCESS, place(view), process.cgroup_oom_kills, "kills")
    found = view.end_events(Event.KERNEL_OOM)
    if found:
        return yes(f"{view.name}: {found[-1].text[:100]}", Kind.LOG, found[-1].place)
    return unknown("no kernel line of a kill for memory")


def _is_new_since_a_kill(view: InstanceView, process: Process) -> bool:
    """Return whether the kernel killed somebody just before this process was started in place of another."""
    began = process.started_at
    kills = [item.at for item in view.told_of_host(Event.KERNEL_OOM) if item.at is not None]
    return began is not None and any(0 <= (began - at).total_seconds() <= LIMITS.burst_s for at in kills)


def _sigkill(case: Case, view: InstanceView) -> Answer:
    killed = [item for item in view.processes if item.signal == 9 or item.exit_code in (-9, 137)]
    if killed and not view.events(Event.ENGINE_DIED):
        return yes(f"{killed[0].label} of {view.name} got SIGKILL", Kind.PROCESS, place(view), 9)
    return unknown("no process was killed")


def _child_killed(case: Case, view: InstanceView) -> Answer:
    found = [item for item in view.end_events(Event.CHILD_DIED) if item.group("code") in ("-9", "137")]
    if found:
        return yes(f"{view.name}: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no child is reported killed")


def _fat(case: Case, view: InstanceView) -> Answer:
    sizes = [item.rss_mb for item in view.processes if item.rss_mb]
    if sizes and max(sizes) > 200_000:
        return yes(
            f"a process of {view.name} holds {max(sizes) / 1024:.0f} GB",
            Kind.PROCESS,
            place(view),
            max(sizes),
            "MB",
        )
    return unknown("no process is fat")


def _gpu_full(case: Case, view: InstanceView) -> Answer:
    found = [item for item in view.end_events(Event.GPU_OOM) if view.still_tells(item)]
    if found:
        return yes(f"{view.name}: {found[-1].text[:110]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no line of a full GPU that still tells")


HOST_MEMORY = Analyzer(
    code="PD0702",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.LOG),
    explains=EXPLAINS,
    checks=(
        proves("the kernel killed it", _killed),
        suggests("SIGKILL", _sigkill),
        suggests("a child was killed", _child_killed),
        suggests("it was fat", _fat),
    ),
)


GPU_MEMORY = Analyzer(
    code="PD0703",
    roles=ENGINES,
    inputs=(Kind.LOG,),
    explains=EXPLAINS,
    checks=(
        proves("out of GPU memory", _gpu_full),
        suggests("the GPU was full once", said_last(Event.GPU_OOM, otherwise="no line of a full GPU")),
    ),
)

ANALYZERS = (HOST_MEMORY, GPU_MEMORY)
