"""PD0312, PD0602, PD0701-PD0703: crashes with a reason."""

from __future__ import annotations

from pdctl.diagnose.analyzer import DEATHS, ENGINES, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.processes import crash_signal
from pdctl.diagnose.predicates import stands
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place

_EXPLAINS = (*DEATHS, *FAILURES, *STALLS, Symptom.UNHEALTHY, Symptom.STARTING, Symptom.STOPPED)


def _place(view: InstanceView) -> Place:
    return Place(f"{view.name}/process.toml")


def _crashed(case: Case, view: InstanceView) -> Answer:
    for process in view.raw.processes:
        number = crash_signal(process)
        if number:
            return yes(
                f"{process.label} of {view.name} was ended by signal {number}",
                Kind.PROCESS,
                _place(view),
                number,
            )
    found = view.end_events(Event.FATAL_SIGNAL)
    if found:
        return yes(f"{view.name}: {found[-1].text[:90]}", Kind.LOG, found[-1].place)
    known = [item for item in view.processes if item.state]
    if (
        known
        and view.has_log
        and all(item.state not in ("gone", "Z") for item in known)
        and view.restarts() == 0
    ):
        return no(f"no process of {view.name} crashed", Kind.PROCESS, _place(view))
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


def _transport_before(case: Case, view: InstanceView) -> Answer:
    found = view.end_events(Event.TRANSPORT_ERROR)
    if found:
        return yes(f"{view.name}: {found[-1].text[:100]}", Kind.LOG, found[-1].place)
    return unknown("no transport error before it")


NATIVE = Analyzer(
    code="PD0312",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.LOG, Kind.STACKS),
    explains=_EXPLAINS,
    checks=(
        requires("a process crashed", _crashed),
        proves("a transfer library's frame in the crash report", _in_library),
        suggests("a process ended by a crash signal", _crashed),
        suggests("a transport error came before", _transport_before),
    ),
)


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
    ready = [
        item for item in view.end_events(Event.READY) if item.at and found[-1].at <= item.at <= dog[-1].at
    ]
    if 0 <= gap <= 900 and not ready:
        return yes(
            f"{view.name} compiled {gap:.0f} s before the watchdog", Kind.LOG, found[-1].place, gap, "s"
        )
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
        return yes(
            f"ranks of {view.name} load or compile a kernel: {now.text()}", Kind.STACKS, now.groups[0].place
        )
    return unknown("the ranks compile nothing")


def _compiles_by_flag(case: Case, view: InstanceView) -> Answer:
    flags = view.raw.source.flags if view.raw.source else ()
    found = [
        flag
        for flag in flags
        if "torch-compile" in flag or "compilation-config" in flag or "jit" in flag.lower()
    ]
    if found:
        return yes(
            f"{view.name} compiles at run time ({found[0]})", Kind.SOURCE, Place(f"{view.name}/source.toml")
        )
    return unknown("no flag that compiles at run time is known")


def _first_batch(case: Case, view: InstanceView) -> Answer:
    """The watchdog fired on one of the first batches after the start."""
    dog = view.end_events(Event.WATCHDOG)
    start = [
        item
        for item in view.end_events(Event.STARTED)
        if dog and item.at and dog[0].at and item.at < dog[0].at
    ]
    if not dog or not start:
        return unknown("no start before a watchdog is known")
    steps = [
        item
        for item in view.all_works
        if item.at and start[-1].at and dog[0].at and start[-1].at <= item.at <= dog[0].at
    ]
    if len(steps) <= 2:
        return yes(
            f"the watchdog fired on batch {len(steps)} of {view.name}", Kind.LOG, dog[0].place, len(steps)
        )
    return no(
        f"{view.name} had made {len(steps)} steps before the watchdog", Kind.LOG, dog[0].place, len(steps)
    )


def _works_again(case: Case, view: InstanceView) -> Answer:
    """After the watchdog the same step went on: nothing was stuck."""
    dog = view.end_events(Event.WATCHDOG)
    after = [
        item
        for item in view.all_works
        if dog and item.is_step and item.at and dog[-1].at and item.at > dog[-1].at
    ]
    if after:
        return yes(
            f"{view.name} printed {len(after)} steps after the watchdog", Kind.LOG, after[0].place, len(after)
        )
    return unknown("no step after the watchdog")


SLOW_KERNEL = Analyzer(
    code="PD0602",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.STACKS, Kind.SOURCE),
    explains=(*_EXPLAINS,),
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


def _xid(case: Case, view: InstanceView) -> Answer:
    for gpu in view.raw.gpus:
        if gpu.xid:
            return yes(
                f"GPU {gpu.index} of {view.name} reports Xid {gpu.xid[0]}",
                Kind.GPU,
                Place(f"{view.name}/gpu.toml"),
                gpu.xid[0],
            )
    found = view.end_events(Event.XID)
    if found:
        return yes(f"{view.name}: {found[0].text[:100]}", Kind.LOG, found[0].place, len(found))
    if view.raw.gpus:
        return unknown(f"the GPUs of {view.name} report no Xid")
    return unknown(f"neither kernel log nor GPU faults of {view.name} are known")


def _gpu_error(case: Case, view: InstanceView) -> Answer:
    found = view.end_events(Event.GPU_ERROR)
    if found:
        return yes(f"{view.name}: {found[-1].text[:100]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no CUDA error is printed")


def _died_of_it(case: Case, view: InstanceView) -> Answer:
    dead = [
        item for item in view.raw.processes if item.state in ("gone", "Z") and (item.exit_code or item.signal)
    ]
    if dead and view.end_events(Event.GPU_ERROR):
        return yes(
            f"{dead[0].label} of {view.name} ended with {dead[0].exit_code or dead[0].signal}",
            Kind.PROCESS,
            _place(view),
        )
    return unknown("no process is known to have died of it")


def _ecc(case: Case, view: InstanceView) -> Answer:
    broken = [gpu for gpu in view.raw.gpus if gpu.ecc_errors]
    if broken:
        return yes(
            f"GPU {broken[0].index} counts {broken[0].ecc_errors} ECC errors",
            Kind.GPU,
            Place(f"{view.name}/gpu.toml"),
        )
    return unknown("no ECC errors are known")


GPU_FAULT = Analyzer(
    code="PD0701",
    roles=ENGINES,
    inputs=(Kind.GPU, Kind.LOG, Kind.PROCESS),
    explains=_EXPLAINS,
    checks=(
        proves("an Xid", _xid),
        suggests("a CUDA error", _gpu_error),
        suggests("a process died of it", _died_of_it),
        suggests("ECC errors", _ecc),
    ),
)


def _killed(case: Case, view: InstanceView) -> Answer:
    for process in view.raw.processes:
        if process.oom_killed:
            return yes(f"{process.label} of {view.name} was killed for memory", Kind.PROCESS, _place(view))
    found = view.end_events(Event.KERNEL_OOM)
    if found:
        return yes(f"{view.name}: {found[-1].text[:100]}", Kind.LOG, found[-1].place)
    return unknown("no kernel line of a kill for memory")


def _sigkill(case: Case, view: InstanceView) -> Answer:
    killed = [item for item in view.processes if item.signal == 9 or item.exit_code in (-9, 137)]
    if killed and not view.events(Event.ENGINE_DIED):
        return yes(f"{killed[0].label} of {view.name} got SIGKILL", Kind.PROCESS, _place(view), 9)
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
            _place(view),
            max(sizes),
            "MB",
        )
    return unknown("no process is fat")


HOST_MEMORY = Analyzer(
    code="PD0702",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.LOG),
    explains=_EXPLAINS,
    checks=(
        proves("the kernel killed it", _killed),
        suggests("SIGKILL", _sigkill),
        suggests("a child was killed", _child_killed),
        suggests("it was fat", _fat),
    ),
)


def _gpu_oom(case: Case, view: InstanceView) -> Answer:
    found = view.end_events(Event.GPU_OOM)
    if found:
        return yes(f"{view.name}: {found[-1].text[:110]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no line of a full GPU")


GPU_MEMORY = Analyzer(
    code="PD0703",
    roles=ENGINES,
    inputs=(Kind.LOG,),
    explains=_EXPLAINS,
    checks=(proves("out of GPU memory", _gpu_oom),),
)
ANALYZERS = (NATIVE, SLOW_KERNEL, GPU_FAULT, HOST_MEMORY, GPU_MEMORY)
