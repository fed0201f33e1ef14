"""PD0308: one side failed and the other was not told; it waits for its own clock."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import aborted_rooms, burst, quantised, room_failures
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.stuck_handle import waiting_thread
from pdctl.diagnose.causes.transfer_sides import EXPLAINS
from pdctl.diagnose.causes.two_sided_rooms import holds_for_nobody
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import alive, level, unless_frozen
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge


def _ends_by_clock(case: Case, view: InstanceView) -> Answer:
    """This side's rooms end by their own timeout: nobody told it anything."""
    quantum = quantised(room_failures(view, "timed out"))
    if quantum is None:
        return unknown(f"rooms of {view.name} do not end by one timeout")
    return yes(
        f"{quantum[1]} rooms of {view.name} ended exactly {quantum[0]:.0f} s after they began to wait",
        Kind.LOG,
        room_failures(view, "timed out")[-1].place,
        quantum[0],
        "s",
    )


def _other_failed(case: Case, view: InstanceView) -> Answer:
    """The other side failed or aborted rooms that this side went on waiting for."""
    for peer in case.peers(view):
        found = burst(aborted_rooms(peer)) or burst(peer.events(Event.TRANSFER_FAILED))
        if found:
            return yes(
                f"{peer.name}: {len(found)} rooms failed within a minute ({found[0].text[:70]})",
                Kind.LOG,
                found[0].place,
                len(found),
            )
    return unknown("no burst of failures on the other side")


def _told_one_side(case: Case, view: InstanceView) -> Answer:
    """The same room: a definite reason there, a timeout here, a minute or more later."""
    waited = {item.group("room"): item for item in room_failures(view, "timed out")}
    for peer in case.peers(view):
        for item in room_failures(peer):
            late = waited.get(item.group("room"))
            if late is None or "timed out" in item.group("reason") or late.at is None or item.at is None:
                continue
            gap = (late.at - item.at).total_seconds()
            if gap >= LIMITS.silence_s:
                return yes(
                    f"room {item.group('room')[-6:]} failed on {peer.name}, {view.name} waited {gap:.0f} s more",
                    Kind.LOG,
                    late.place,
                    gap,
                    "s",
                )
    return unknown("no room with different ends on the two sides")


def _waits_alone(case: Case, view: InstanceView) -> Answer:
    """Many rooms wait here, and the other side holds none."""
    waiting = level(view, Gauge.TRANSFER)
    peers = case.peers(view)
    held = [
        (level(peer, Gauge.INFLIGHT) or 0.0) + (level(peer, Gauge.BOOTSTRAP) or 0.0)
        for peer in peers
        if level(peer, Gauge.INFLIGHT) is not None
    ]
    if waiting is None or not held:
        return unknown("the queues of the two sides are not known")
    text = f"{waiting:g} rooms wait on {view.name}, prefill holds {sum(held):g}"
    reading = view.gauge(Gauge.TRANSFER)
    if waiting >= LIMITS.asymmetry_floor and waiting >= LIMITS.asymmetry_ratio * max(1.0, max(held)):
        return yes(text, Kind.METRICS if reading else Kind.LOG, reading.place if reading else None, waiting)
    return unless_frozen(no(text, Kind.METRICS if reading else Kind.LOG, value=waiting), view, Gauge.TRANSFER)


def _waits_on_failed(case: Case, view: InstanceView) -> Answer:
    """Its executor waits for a transfer; the other side reported that transfer failed."""
    waits = waiting_thread(view)
    if not waits.is_true:
        return unknown("no thread is known to wait for a transfer")
    for peer in case.peers(view):
        found = peer.events(Event.TRANSFER_FAILED) or room_failures(peer)
        if found and not view.events(Event.TRANSFER_FAILED):
            return yes(f"{waits.text}; {peer.name}: {found[0].text[:80]}", Kind.STACKS, waits.place, len(found))
    return unknown("the other side reports no failure")


ANALYZER = Analyzer(
    code="PD0308",
    roles=("decode", "prefill"),
    inputs=(Kind.LOG, Kind.METRICS, Kind.STACKS, Kind.HTTP, Kind.PROCESS),
    explains=EXPLAINS,
    checks=(
        requires("it lives", alive),
        proves("one room, two ends", _told_one_side),
        proves("it holds a room that the other side has given up", holds_for_nobody),
        proves("it waits for a transfer that the other side failed", _waits_on_failed),
        suggests("its rooms end by their own clock", _ends_by_clock),
        suggests("the other side failed in a burst", _other_failed),
        suggests("it waits alone", _waits_alone),
    ),
)
