"""PD0304: an aborted transfer never ends, is waited for without bound, and blocks the rest."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import abort_burst, burst
from pdctl.diagnose.case import Case
from pdctl.diagnose.pages import unfenced
from pdctl.diagnose.predicates import alive, gpus_do_not_spin, stalled
from pdctl.diagnose.ranks import handle_wait
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge


def waiting_thread(view: InstanceView) -> Answer:
    """Ask whether a thread waits for a transfer's end in every dump there is."""
    dumps = [view.raw.stacks or view.raw.native, view.raw.stacks_prev]
    found = []
    for dump in dumps:
        if dump:
            waits = [(process, name) for process in dump for thread in process.threads if (name := handle_wait(thread))]
            if not waits:
                return no(f"no thread of {view.name} waits for a transfer", Kind.STACKS, dump[0].place)
            found.append(waits)
    if not found:
        return unknown(f"no stacks of {view.name}")
    process, name = found[0][0]
    both = " in both dumps" if len(found) == 2 else ""
    return yes(
        f"{len(found[0])} threads of {view.name} wait in {name}{both}",
        Kind.STACKS,
        process.place,
        len(found[0]),
    )


def _fence_has_no_end(case: Case, view: InstanceView) -> Answer:
    """Ask whether pages of an aborted READ wait for its end past every bound."""
    held = unfenced(view)
    if held is None:
        return unknown(f"no pages of {view.name} are known to wait for the end of an aborted transfer")
    text = f"{view.name}: {held.pages:g} pages wait for the end of aborted transfers for {view.interval_s:.0f} s"
    return yes(f"{text}, none landed meanwhile", Kind.METRICS, held.place, held.pages, "pages")


def _waits_after_abort(case: Case, view: InstanceView) -> Answer:
    waits = waiting_thread(view)
    if not waits.is_true:
        return waits
    aborts = abort_burst(case, view)
    failed = burst(view.events(Event.TRANSFER_FAILED))
    if aborts.is_true or failed:
        return waits
    return unknown("a thread waits for a transfer, no abort is known")


def _seen_to_wait(case: Case, view: InstanceView) -> Answer:
    """Ask for a sign of the wait itself: aborts before a stall fit a dead thread and parted ranks as well."""
    signs = (_fence_has_no_end(case, view), waiting_thread(view))
    return next((sign for sign in signs if sign.is_true), unknown("no transfer is seen to be waited for"))


ANALYZER = Analyzer(
    code="PD0304",
    roles=("prefill", "decode"),
    inputs=(Kind.STACKS, Kind.LOG, Kind.GPU, Kind.METRICS, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*STALLS, *FAILURES, Symptom.STUCK_SUBSET, Symptom.LEAK),
    checks=(
        requires("it lives", alive),
        requires("no GPU spins without a step", gpus_do_not_spin),
        requires("a transfer is seen to be waited for", _seen_to_wait),
        proves("a thread waits for a transfer, after aborts", _waits_after_abort),
        proves("pages wait for the end of an aborted transfer", _fence_has_no_end),
        suggests("a burst of aborts came before", abort_burst),
        suggests("computed rooms stand still", lambda case, view: stalled(case, view, Gauge.INFLIGHT)),
    ),
)
