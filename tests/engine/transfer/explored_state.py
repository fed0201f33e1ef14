"""What a state of the exploration is: small, frozen, and hashed millions of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.transfer.protocol.frames import Kind
from engine.transfer.protocol.rooms import DecodeState, PrefillState

TO_PREFILL, TO_DECODE = "prefill", "decode"
SIDES = (TO_PREFILL, TO_DECODE)


class Frame(NamedTuple):
    """A frame about the room that carries it."""

    to: str
    kind: Kind
    index: int = 0
    """Of a READY: its chunk. Of an ACK or NACK: that of the frame it answers."""
    of: Kind | None = None


class Room(NamedTuple):
    """One room on both sides, with what is in flight about it."""

    prefill: PrefillState = PrefillState.ABSENT
    decode: DecodeState = DecodeState.ABSENT
    leg: str = "to come"
    """Prefill's HTTP leg and loop: to come, waiting, paired (waits for pages), computing, over."""
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
    """Decode's, by its loop: none, wanted, granted, fencing."""
    granted: bool = False
    """Decode's control thread has the grant."""
    next: int = 0
    waiting: int = 0
    reads: int = 0
    doubtful: bool = False
    """A READ ended in an error, and its agent was not dropped yet."""
    repeats: frozenset[Frame] = frozenset()
    net: frozenset[Frame] = frozenset()
    committed: bool = False
    """Ghost: prefill said COMMITTED while it held the pages."""
    intact: bool = True
    """Ghost: every READ so far ended while prefill held the pages."""

    @property
    def takes_from_decode(self) -> bool:
        """Decode's loop has given it pages."""
        return self.pages in ("granted", "fencing")

    @property
    def is_over(self) -> bool:
        """Nothing is open, held or still to be said."""
        return (
            self.prefill is PrefillState.ABSENT
            and self.decode is DecodeState.ABSENT
            and self.pages == "none"
            and not (self.held or self.told or self.repeats)
            and not {"waiting", "paired", "computing"} & {self.leg, self.asked}
        )


OVER = Room(leg="over", asked="over")


class Link(NamedTuple):
    """What all rooms have in common: one connection between two incarnations, and what may still happen to it."""

    unaware: frozenset[str] = frozenset()
    """Sides that have not noticed yet that the connection broke; until then nothing travels."""
    stopped: str | None = None
    restarts: int = 0
    stops: int = 0

    @property
    def is_calm(self) -> bool:
        """Both sides run and are connected."""
        return not self.unaware and self.stopped is None


class State(NamedTuple):
    """A link and its two rooms; where one is explored, the other is over from the start."""

    link: Link
    rooms: tuple[Room, Room]


class Around(NamedTuple):
    """As much of the rest of the world as the moves of one room depend on."""

    is_connected: bool
    stopped: str | None
    frames: int
    """In flight about the other room."""
    prefill_is_full: bool
    """The other room left no pages there."""
    decode_is_full: bool
    is_patient: bool = False
    """No client leaves and no request's deadline passes."""


NOWHERE = Around(is_connected=False, stopped=None, frames=0, prefill_is_full=True, decode_is_full=True)
"""While a link breaks nothing can be sent or taken."""


class Broken(Exception):
    """A check failed; the message says which."""


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise Broken(claim)


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    rooms: int = 1
    """One or two."""
    chunks: int = 2
    in_flight: int = 3
    """Frames, of all rooms together."""
    restarts: int = 1
    stops: int = 1
    prefill_pool: int = 2
    """Rooms whose pages fit: with one, two rooms take turns with the same pages."""
    decode_pool: int = 2


def forgotten(room: Room, to: str) -> Room:
    """Repeat nothing more to a side."""
    return room._replace(repeats=frozenset(frame for frame in room.repeats if frame.to != to))


def answered(room: Room, to: str, kind: Kind | None, index: int) -> Room:
    """Repeat a frame no more: its answer came."""
    left = frozenset(f for f in room.repeats if (f.to, f.kind, f.index) != (to, kind, index))
    return room._replace(repeats=left)


def settled(room: Room) -> Room:
    """Forget what can matter to no later step or check, so that rooms that behave alike are one."""
    if room.leg == "over" and room.chunks:
        room = room._replace(chunks=0)
    if room.decode is DecodeState.ABSENT and (room.next or room.waiting):
        room = room._replace(next=0, waiting=0)
    if room.decode in (DecodeState.ABSENT, DecodeState.LANDED, DecodeState.FENCING):
        if not room.intact:
            room = room._replace(intact=True)
        if room.committed and room.prefill is not PrefillState.LANDED:
            room = room._replace(committed=False)
    if room.granted and room.pages == "none" and room.decode in (DecodeState.ABSENT, DecodeState.LANDED):
        room = room._replace(granted=False)
    return room
