"""PD0306: transfers stay in progress, without end or error."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import aborted_rooms, room_failures
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.stuck_handle import waiting_thread
from pdctl.diagnose.causes.transfer_sides import EXPLAINS
from pdctl.diagnose.hidden import queue_floor
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import alive, kv_usage, peers_alive, unless_frozen
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge


def _floor(case: Case, view: InstanceView) -> Answer:
    floor = queue_floor(view, Gauge.TRANSFER)
    usage = kv_usage(view)
    if floor is None:
        return unknown(f"the transfer queue of {view.name} keeps no floor")
    if usage is not None and usage[0] >= LIMITS.kv_full:
        return no(f"KV of {view.name} is full ({usage[0]:.2f}): it waits for capacity", usage[1])
    if room_failures(view) or view.events(Event.TRANSFER_FAILED):
        return unknown("rooms of this queue fail, so they do not stay")
    return yes(
        f"{floor[0]:g} transfers of {view.name} stayed for {floor[1]:.0f} min while others passed",
        Kind.LOG,
        value=floor[0],
    )


def _fetch_flat(case: Case, view: InstanceView) -> Answer:
    reading, before = view.gauge(Gauge.TRANSFER), view.gauge_before(Gauge.TRANSFER)
    done = view.rise(Counter.TRANSFERS_DONE)
    if reading is None or before is None or done is None:
        return unknown("no two samples of transfers")
    text = f"{view.name}: {reading.value:g} transfers under way, {done.value:g} ended between the samples"
    if reading.value > 0 and before.value > 0 and done.value == 0:
        return yes(text, Kind.METRICS, reading.place, reading.value)
    return unless_frozen(no(text, Kind.METRICS, reading.place, reading.value), view, Gauge.TRANSFER)


def _waits_without_abort(case: Case, view: InstanceView) -> Answer:
    """A thread waits for the same transfer in both dumps, and nobody aborted anything."""
    waits = waiting_thread(view)
    if not waits.is_true or not view.raw.stacks_prev:
        return unknown("no thread is seen twice waiting for a transfer")
    aborted = any(aborted_rooms(side) or side.events(Event.TRANSFER_FAILED) for side in (view, *case.peers(view)))
    return unknown("transfers were aborted or failed") if aborted else waits


ANALYZER = Analyzer(
    code="PD0306",
    roles=("decode", "prefill"),
    inputs=(Kind.METRICS, Kind.LOG, Kind.HTTP, Kind.PROCESS, Kind.STACKS),
    explains=EXPLAINS,
    checks=(
        requires("it lives", alive),
        requires("its peers live", peers_alive),
        proves("the transfer queue keeps a floor", _floor),
        proves("a thread waits for a transfer nobody aborted", _waits_without_abort),
        suggests("transfers under way, none ends", _fetch_flat),
        suggests("a thread waits for a transfer", lambda case, view: waiting_thread(view)),
    ),
)
