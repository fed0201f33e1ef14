"""PD0302: a transfer worker is dead (of our own engine: on either side); its rooms hang."""

from __future__ import annotations

from pdctl.diagnose.analyzer import proves, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.thread_signs import TRANSFER, dead_thread
from pdctl.diagnose.predicates import stalled
from pdctl.diagnose.standing import full_dumps, threads_running
from pdctl.diagnose.symptoms import progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Gauge


def _worker_missing(case: Case, view: InstanceView) -> Answer:
    """Fewer transfer workers on one rank than on its siblings, or none."""
    dumps = full_dumps(view.raw.stacks)
    counts = [threads_running(process, *TRANSFER.functions) for process in dumps]
    if not counts or max(counts) == 0:
        return unknown(f"no transfer workers in the dumps of {view.name}")
    if min(counts) < max(counts):
        index = counts.index(min(counts))
        return yes(
            f"a rank of {view.name} has {min(counts)} transfer workers, others {max(counts)}",
            Kind.STACKS,
            dumps[index].place,
            min(counts),
        )
    return no(
        f"every rank of {view.name} has {max(counts)} transfer workers",
        Kind.STACKS,
        dumps[0].place,
        max(counts),
    )


def _one_decode_only(case: Case, view: InstanceView) -> Answer:
    """Rooms of one decode stand still while another's move: they are sharded by decode."""
    if view.role != "prefill":
        return unknown(f"{view.name} is no prefill")
    states = {peer.name: progress(peer, Gauge.TRANSFER) for peer in case.peers(view)}
    still = [name for name, moved in states.items() if moved is False]
    moving = [name for name, moved in states.items() if moved]
    if still and moving:
        return yes(f"transfers to {still[0]} stand still, those to {moving[0]} move", Kind.METRICS)
    return unknown("the decodes do not differ")


ANALYZER = dead_thread(
    "PD0302",
    TRANSFER,
    ("prefill", "decode"),
    proves("a rank has fewer workers than its siblings", _worker_missing),
    suggests("only one decode is affected", _one_decode_only),
    suggests("computed rooms stand still", lambda case, view: stalled(case, view, Gauge.INFLIGHT)),
)
