"""What both sides make of the same room, by the lists of our own engine. Pure functions of views.

The two lists are taken some tenths of a second apart, so a room that ends in between is no sign: only rooms count that
are old, or whose end on the one side says that nothing was heard of the other.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.evidence.rooms import Room

PAST_DEADLINE = "not finished within its deadline"
"""How our engine gives the reason (engine/scheduler/failures.py)."""
_HELD = ("paired", "reading")
_ENDED_WELL = ("closed", "landed")


class Abandoned(msgspec.Struct, frozen=True):
    """A room that one side holds for another that has given it up."""

    text: str
    age_s: float


def abandoned(view: InstanceView, peers: Iterable[InstanceView]) -> Abandoned | None:
    """Return an old room that this side holds for a living peer which let it fail, or does not know it at all."""
    rooms = view.raw.rooms
    if rooms is None:
        return None
    for peer in peers:
        live, recent = peer.raw.rooms, peer.raw.rooms_recent
        if live is None or recent is None:
            continue
        for number, room in rooms.by_room().items():
            age_s = room.age_s(rooms.now)
            is_theirs = room.state in _HELD and room.peer_incarnation == live.incarnation
            other = recent.by_room().get(number)
            is_known = number in live.by_room() or (other is not None and other.state in _ENDED_WELL)
            if is_theirs and not is_known and age_s is not None and age_s >= LIMITS.patience_s:
                theirs = f"failed there ({other.reason})" if other else "is not known there"
                return Abandoned(f"{view.name} holds a room for {peer.name} for {age_s:.0f} s, and it {theirs}", age_s)
    return None


class CutShort(msgspec.Struct, frozen=True):
    """Requests that ended within the last minute by the deadline that the engine was given."""

    count: int
    ended: int
    """All that ended."""
    text: str


def cut_short(view: InstanceView) -> CutShort | None:
    """Return the requests that the engine ended at its own deadline while they were served, where they are several."""
    recent = view.raw.rooms_recent
    if recent is None:
        return None
    cut = [item for item in recent.rooms if (item.reason or "").startswith(PAST_DEADLINE)]
    if len(cut) < LIMITS.quantum_events:
        return None
    text = f"{view.name}: {len(cut)} of {len(recent.rooms)} requests of the last minute: {cut[-1].reason}"
    return CutShort(len(cut), len(recent.rooms), text)


def legs_of(view: InstanceView) -> dict[int | str, Room]:
    """Return room -> leg, live and ended."""
    lists = (view.raw.rooms_recent, view.raw.rooms)
    return {number: room for each in lists if each is not None for number, room in each.by_room().items()}


def is_unheard(view: InstanceView, room: Room, theirs: Room | None) -> bool:
    """Return whether the other side has answered a room long enough ago, and this side has not heard of it."""
    if theirs is None or not theirs.was_paired or room.was_paired:
        return False
    if room.reason is not None:
        return room.reason == "pairing_timeout"
    age_s = room.age_s(view.raw.rooms.now) if view.raw.rooms else None
    return age_s is not None and age_s >= LIMITS.ownerless_s
