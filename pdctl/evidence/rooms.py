"""Legs of requests that our own engine lists, live and ended within the last minute: what a side makes of a room."""

from __future__ import annotations

import msgspec

from pdctl.evidence.records import Place, Problem


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """One leg, as `/rooms` and `/rooms/recent` show it (engine/observe/records.py)."""

    room: int | str | None = None
    """A number; a pseudonym where the evidence was redacted."""
    state: str = ""
    """announced | paired | reading | landed | closed | failed, else the phase of a sequence."""
    reason: str | None = None
    peer: str | None = None
    peer_incarnation: str | None = None
    at: dict[str, object] = {}
    """Stage -> Unix time; a value that is no number is unknown."""

    @property
    def was_paired(self) -> bool:
        """Return whether this side has heard of the other about this room."""
        return "paired" in self.at

    def age_s(self, now: float) -> float | None:
        """Return the seconds since this side received it."""
        received = self.at.get("received")
        return now - received if isinstance(received, int | float) and now > 0 else None


class RoomList(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    incarnation: str = ""
    now: float = 0.0
    rooms: tuple[Room, ...] = ()

    def by_room(self) -> dict[int | str, Room]:
        """Return the legs by room; legs without one (of a unified engine) are left out."""
        return {item.room: item for item in self.rooms if item.room is not None}


def room_list(data: bytes, file: str) -> tuple[RoomList | None, tuple[Problem, ...]]:
    """Return the list of a file."""
    try:
        return msgspec.json.decode(data, type=RoomList), ()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return None, (Problem(Place(file), f"is no list of rooms: {error}"),)
