"""PD0701: a GPU reported a fault."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.crash_signs import EXPLAINS, place
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.kernel_lines import is_of_host
from pdctl.diagnose.predicates import said_last
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place


def _xid(case: Case, view: InstanceView) -> Answer:
    """Ask for a fault since it runs: the kernel's ring reaches back for months."""
    found = [item for item in view.events(Event.XID) if not is_of_host(item) or _is_since_start(view, item)]
    if found:
        return yes(f"{view.name}: {found[0].text[:100]}", Kind.LOG, found[0].place, len(found))
    # A list of codes has no times: it counts where no line of the kernel could tell when they were.
    for gpu in view.raw.gpus:
        if gpu.xid and not view.told_of_host(Event.XID):
            return yes(
                f"GPU {gpu.index} of {view.name} reports Xid {gpu.xid[0]}",
                Kind.GPU,
                Place(f"{view.name}/gpu.toml"),
                gpu.xid[0],
            )
    return unknown(f"no Xid of {view.name} is known since it runs")


def _is_since_start(view: InstanceView, item: Occurrence) -> bool:
    return item.at is not None and view.started_at is not None and item.at >= view.started_at


def _died_of_it(case: Case, view: InstanceView) -> Answer:
    dead = [item for item in view.raw.processes if item.state in ("gone", "Z") and (item.exit_code or item.signal)]
    if dead and view.end_events(Event.GPU_ERROR):
        return yes(
            f"{dead[0].label} of {view.name} ended with {dead[0].exit_code or dead[0].signal}",
            Kind.PROCESS,
            place(view),
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


ANALYZER = Analyzer(
    code="PD0701",
    roles=ENGINES,
    inputs=(Kind.GPU, Kind.LOG, Kind.PROCESS),
    explains=EXPLAINS,
    checks=(
        proves("an Xid", _xid),
        suggests("an Xid, maybe before it was started", said_last(Event.XID, otherwise="no Xid is printed")),
        suggests("a CUDA error", said_last(Event.GPU_ERROR, otherwise="no CUDA error is printed")),
        suggests("a process died of it", _died_of_it),
        suggests("ECC errors", _ecc),
    ),
)
