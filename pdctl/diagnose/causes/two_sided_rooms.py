"""The same room on both sides: who knows what the other does not. Of our own engine, which lists its rooms."""

from __future__ import annotations

from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.rooms import abandoned, is_unheard, legs_of
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import TRANSFERS
from pdctl.evidence.records import Place


def holds_for_nobody(case: Case, view: InstanceView) -> Answer:
    """Ask whether this side holds an old room that a living peer has given up, or does not know at all."""
    held = abandoned(view, case.peers(view))
    if held is None:
        return unknown(f"no room of {view.name} is known to be given up by the other side")
    return yes(held.text, Kind.HTTP, Place(f"{view.name}/rooms.json"), held.age_s, "s")


def is_never_heard(case: Case, view: InstanceView) -> Answer:
    """Ask whether rooms that the peer answers, to this very process, are never paired here."""
    for peer in case.peers(view):
        mine, theirs = legs_of(view), legs_of(peer)
        unheard = [number for number, room in mine.items() if is_unheard(view, room, theirs.get(number))]
        if len(unheard) >= LIMITS.burst_events:
            text = f"{peer.name} answers {len(unheard)} rooms of {view.name}, which hears of none"
            return yes(text, Kind.HTTP, Place(f"{view.name}/rooms.json"), len(unheard), "rooms")
    return unknown(f"nothing shows that {view.name} does not hear of its rooms")


def has_forgotten(case: Case, view: InstanceView) -> Answer:
    """Ask whether an older peer counts transfers with this instance that this process never made: it was restarted."""
    for peer in case.peers(view):
        own, theirs = _landed(view, peer.name), _landed(peer, view.name)
        ages = view.age_of_process_s, peer.age_of_process_s
        if own is None or theirs is None or ages[0] is None or ages[1] is None:
            continue
        text = f"{peer.name} counts {theirs:g} transfers with {view.name}, which made {own:g} since its start"
        place = Place(f"{peer.name}/metrics.txt", pointer=TRANSFERS)
        if ages[1] > ages[0] and theirs - own >= LIMITS.burst_events:
            return yes(f"{view.name} was restarted alone: {text}", Kind.METRICS, place, theirs - own)
        return no(text, Kind.METRICS, place, theirs - own)
    return unknown("the sides do not count their transfers with each other")


def _landed(view: InstanceView, peer: str) -> float | None:
    """Return the landed transfers with a peer; None for an engine that counts none by peer."""
    rows = view.raw.metrics.series.get(TRANSFERS) if view.raw.metrics else None
    if rows is None:
        return None
    return sum(row.value for row in rows if row.labels.get("peer") == peer and row.labels.get("result") == "landed")
