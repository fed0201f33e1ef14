"""What a state of the exploration is: small, frozen, and hashed millions of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.transfer.frames import Kind
from engine.transfer.rooms import DecodeState, PrefillState

MOST_IN_FLIGHT = 3


class Frame(NamedTuple):
    to: str
    room: int
    kind: Kind
    index: int = 0
    """Of a READY: its chunk. Of an ACK or NACK: that of the frame it answers."""
    of: Kind | None = None


class Room(NamedTuple):
    """One room on both sides."""

    prefill: PrefillState = PrefillState.ABSENT
    decode: DecodeState = DecodeState.ABSENT
    leg: str = "to come"
    """Prefill's HTTP leg and loop: to come, waiting, computing, over."""
    chunks: int = 0
    """Computed so far."""
    bound: bool = False
    """Prefill's room knows its peer."""
    held: bool = False
    """Prefill holds the pages."""
    asked: str = "to come"
    """Decode's HTTP leg and loop: to come, waiting, over."""
    told: tuple[str, ...] = ()
    """Events on their way to decode's loop."""
    pages: str = "none"
    """Decode's, by its loop: none, granting, granted, fencing."""
    granted: bool = False
    """Decode's control thread has the grant."""
    next: int = 0
    waiting: int = 0
    reads: int = 0
    doubtful: bool = False
    """A READ ended in an error, and its agent was not dropped yet."""
    repeats: frozenset[Frame] = frozenset()
    committed: bool = False
    """Ghost: prefill said COMMITTED while it held the pages."""
    intact: bool = True
    """Ghost: every READ so far ended while prefill held the pages."""


class State(NamedTuple):
    rooms: tuple[Room, ...]
    net: frozenset[Frame] = frozenset()
    unaware: frozenset[str] = frozenset()
    """Sides that have not noticed yet that the connection broke; until then nothing travels."""
    stopped: str | None = None
    restarts: int = 0
    stops: int = 0


class Broken(Exception):
    """A check failed; the message says which."""


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise Broken(claim)


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    rooms: int = 1
    chunks: int = 2
    in_flight: int = MOST_IN_FLIGHT
    restarts: int = 1
    stops: int = 1


def with_room(state: State, number: int, room: Room) -> State:
    """Replace one room."""
    return state._replace(rooms=(*state.rooms[:number], room, *state.rooms[number + 1 :]))


def forgotten(room: Room, to: str) -> Room:
    """Repeat nothing more to a side."""
    return room._replace(repeats=frozenset(frame for frame in room.repeats if frame.to != to))


def answered(room: Room, to: str, kind: Kind | None, index: int) -> Room:
    """Repeat a frame no more: its answer came."""
    left = frozenset(f for f in room.repeats if (f.to, f.kind, f.index) != (to, kind, index))
    return room._replace(repeats=left)


def is_over(state: State) -> bool:
    """Nothing is open, held or still to be said, and both sides run."""
    return (
        not state.unaware
        and state.stopped is None
        and all(
            room.prefill is PrefillState.ABSENT
            and room.decode is DecodeState.ABSENT
            and room.pages == "none"
            and not (room.held or room.told or room.repeats)
            and "waiting" not in (room.leg, room.asked)
            for room in state.rooms
        )
    )
