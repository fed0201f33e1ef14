"""Two rooms between two sides and a bad network, by the tables that the engine runs: which states may follow a state.

The network delivers up to three frames in flight in any order, again, or never. A side may be restarted or stopped in
any state. Time is a choice: whatever a clock may do, it may do at once. Two rooms share what they share in the engine:

* the link: it breaks for both at once, with what is in flight, and both are told of the one incarnation that is gone;
* decode's agent: the fence of one room that drops it takes the unfinished READs of the other with it, which are posted
  again by the next agent, or are out of reach too where that room has failed as well;
* the pages: where the pool of a side holds only one prompt, the other room waits until it is given back, and goes on
  with the very pages that the first one had. Whom a loop serves first is open;
* the frames in flight: what is lost for want of room there is lost for whichever room comes second.

What belongs to the tables' runners and to the loops stands in `explored_prefill` and `explored_decode` once more; what
belongs to tables (`rooms`, `meaning`) is used as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from engine.transfer.protocol.rooms import DECODE, PREFILL
from tests.engine.transfer.explored_decode import DecodeHalf, DecodeTable
from tests.engine.transfer.explored_prefill import PrefillHalf, PrefillTable
from tests.engine.transfer.explored_state import (
    NOWHERE,
    OVER,
    SIDES,
    TO_DECODE,
    TO_PREFILL,
    Around,
    Bounds,
    Link,
    Room,
    State,
    settled,
)


class Change(NamedTuple):
    """What a move of the link does to each room."""

    breaks: bool = False
    """What is in flight is gone."""
    restarts: str | None = None
    notices: str | None = None
    """This side learns that its peer is gone."""


class World:
    """Successors of a state under given tables."""

    def __init__(
        self,
        bounds: Bounds,
        prefill: PrefillTable = PREFILL,  # type: ignore[assignment]
        decode: DecodeTable = DECODE,  # type: ignore[assignment]
    ) -> None:
        self.bounds = bounds
        self._halves = cache(lambda around: (PrefillHalf(bounds, prefill, around), DecodeHalf(bounds, decode, around)))

    def start(self) -> State:
        """Return the state in which nothing has happened yet."""
        rooms = (Room(), Room() if self.bounds.rooms == 2 else OVER)
        return State(Link(restarts=self.bounds.restarts, stops=self.bounds.stops), rooms)

    def around(self, link: Link, other: Room) -> Around:
        """Return what the moves of a room depend on besides itself."""
        return Around(
            is_connected=not link.unaware,
            stopped=link.stopped,
            frames=len(other.net),
            prefill_is_full=other.held and self.bounds.prefill_pool == 1,
            decode_is_full=other.takes_from_decode and self.bounds.decode_pool == 1,
        )

    # -- one room ---------------------------------------------------------------------------------------------

    def moves(self, room: Room, around: Around) -> Iterator[Room]:
        """Return what one room may become by itself. Raises Broken."""
        prefill, decode = self._halves(around)
        yield from map(settled, self._travel(room, around))
        if around.stopped != TO_PREFILL:
            yield from map(settled, prefill.moves(room))
        if around.stopped != TO_DECODE:
            yield from map(settled, decode.moves(room))

    def _travel(self, room: Room, around: Around) -> Iterator[Room]:
        """Lose, deliver and double frames, and repeat them."""
        prefill, decode = self._halves(around)
        hear = {TO_PREFILL: prefill.hear, TO_DECODE: decode.hear}
        for frame in room.net:
            without = room._replace(net=room.net - {frame})
            yield without
            if around.is_connected and frame.to != around.stopped:
                yield hear[frame.to](without, frame)
                yield hear[frame.to](room, frame)
        if around.is_connected and len(room.net) + around.frames < self.bounds.in_flight:
            for frame in room.repeats - room.net:
                if around.stopped in (None, frame.to):
                    yield room._replace(net=room.net | {frame})

    def drops(self, room: Room, around: Around) -> Iterator[Room]:
        """Return what one room may become by dropping decode's agent; `dropped` is the other's part. Raises Broken."""
        if around.stopped != TO_DECODE:
            yield from map(settled, self._halves(around)[1].fences_by_dropping(room))

    def dropped(self, room: Room) -> Room:
        """Return what becomes of a room when decode's agent is dropped for the other one."""
        return settled(DecodeHalf.agent_dropped(room))

    # -- the link ---------------------------------------------------------------------------------------------

    def link_moves(self, link: Link) -> Iterator[tuple[Link, Change]]:
        """Return restarts, stops, and what a side may notice."""
        for side in SIDES:
            if link.restarts and not link.unaware:
                other = TO_DECODE if side == TO_PREFILL else TO_PREFILL
                stopped = None if link.stopped == side else link.stopped
                after = link._replace(unaware=frozenset({other}), restarts=link.restarts - 1, stopped=stopped)
                yield after, Change(breaks=True, restarts=side)
            if link.stops and link.stopped is None:
                yield link._replace(stopped=side, stops=link.stops - 1), Change()
            if side in link.unaware and side != link.stopped:
                yield link._replace(unaware=link.unaware - {side}), Change(notices=side)
        if link.stopped is not None:
            yield link._replace(stopped=None), Change()
            if not link.unaware:
                other = TO_DECODE if link.stopped == TO_PREFILL else TO_PREFILL
                yield link._replace(unaware=frozenset({link.stopped})), Change(breaks=True, notices=other)

    def changed(self, room: Room, change: Change) -> Room:
        """Return what a move of the link makes of a room. Raises Broken."""
        prefill, decode = self._halves(NOWHERE)
        half = {TO_PREFILL: prefill, TO_DECODE: decode}
        if change.breaks:
            room = room._replace(net=frozenset())
        if change.restarts is not None:
            room = half[change.restarts].restarted(room)
        if change.notices is not None:
            room = half[change.notices].peer_gone(room)
        return settled(room)

    # -- all of it --------------------------------------------------------------------------------------------

    def successors(self, state: State) -> Iterator[State]:
        """Return every state that may come next, the room that moved before the other. Raises Broken."""
        for link, change in self.link_moves(state.link):
            first, second = (self.changed(room, change) for room in state.rooms)
            yield State(link, (first, second))
        first, second = state.rooms
        for own, other in ((first, second), (second, first)):
            around = self.around(state.link, other)
            for after in self.moves(own, around):
                yield State(state.link, (after, other))
            for after in self.drops(own, around):
                yield State(state.link, (after, self.dropped(other)))
