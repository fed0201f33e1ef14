"""Two sides and a bad network, by the tables that the engine runs: which states may follow a state.

The network delivers up to three frames in flight in any order, again, or never. A side may be restarted or stopped in
any state. Time is a choice: whatever a clock may do, it may do at once.

What belongs to the tables' runners (`prefill_steps`, `decode_steps`, the loops in `scheduler.roles`) is written
here once more, as short as it goes; what belongs to tables (`rooms`, `meaning`) is used as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from explored_state import Bounds, Frame, Room, State, answered, check, forgotten, with_room

from engine.transfer.frames import Kind
from engine.transfer.meaning import (
    DECODE_HEARS,
    DECODE_HEARS_ACK_OF,
    DECODE_HEARS_NACK_OF,
    DECODE_SENDS,
    FORGETS,
    PREFILL_HEARS,
    PREFILL_HEARS_ACK_OF,
    PREFILL_SENDS,
    Sending,
)
from engine.transfer.rooms import DECODE, PREFILL, Action, DecodeEvent, DecodeState, Entry, PrefillEvent, PrefillState

P, D, PE, DE, A = PrefillState, DecodeState, PrefillEvent, DecodeEvent, Action
TO_PREFILL, TO_DECODE = "prefill", "decode"


class World:
    """Successors of a state under given tables."""

    def __init__(
        self,
        bounds: Bounds,
        prefill: Mapping[PrefillState, Mapping[PrefillEvent, Entry]] = PREFILL,  # type: ignore[assignment]
        decode: Mapping[DecodeState, Mapping[DecodeEvent, Entry]] = DECODE,  # type: ignore[assignment]
    ) -> None:
        self.bounds = bounds
        self.prefill = prefill
        self.decode = decode

    def start(self) -> State:
        return State(
            tuple(Room() for _ in range(self.bounds.rooms)), restarts=self.bounds.restarts, stops=self.bounds.stops
        )

    # -- sending ----------------------------------------------------------------------------------------------

    def _put(self, state: State, frame: Frame) -> State:
        """Put a frame on the wire; one that finds no room there counts as lost."""
        if state.unaware or len(state.net) >= self.bounds.in_flight:
            return state
        return state._replace(net=state.net | {frame})

    def _say(self, state: State, number: int, to: str, how: Sending, index: int = 0) -> State:
        frame = Frame(to, number, how.kind, index)
        room = state.rooms[number]
        if how.replaces:
            room = forgotten(room, to)
        if how.is_repeated:
            room = room._replace(repeats=room.repeats | {frame})
        return self._put(with_room(state, number, room), frame)

    # -- prefill ----------------------------------------------------------------------------------------------

    def on_prefill(self, state: State, number: int, event: PrefillEvent, frame: Frame | None = None) -> State:
        """Take one step of prefill's table, as `PrefillSteps.apply` does."""
        entry = self.prefill[state.rooms[number].prefill][event]
        state = with_room(state, number, state.rooms[number]._replace(prefill=entry.state))
        for action in entry.actions:
            room = state.rooms[number]
            if action in FORGETS:
                state = with_room(state, number, forgotten(room, TO_DECODE))
            state = self._prefill_does(state, number, action, frame)
        room = state.rooms[number]
        if entry.state is P.ABSENT:
            check(not room.held, "leak: prefill forgot a room that holds pages")
            state = with_room(state, number, room._replace(bound=False))
        return state

    def _prefill_does(self, state: State, number: int, action: Action, frame: Frame | None) -> State:
        room = state.rooms[number]
        if action is A.TELL_PAIRED:
            return with_room(state, number, room._replace(leg="computing", held=True))
        if action is A.TELL_FAILED:
            return with_room(state, number, room._replace(leg="over", held=False))
        if action is A.TELL_COMMITTED:
            check(room.held, "COMMITTED for pages that were freed")
            return with_room(state, number, room._replace(leg="over", held=False, committed=True))
        if action in (A.ACK, A.NACK):
            kind = Kind.ACK if action is A.ACK else Kind.NACK
            of = frame or Frame(TO_PREFILL, number, Kind.OFFER)
            return self._put(state, Frame(TO_DECODE, number, kind, of.index, of.kind)) if room.bound else state
        how = PREFILL_SENDS.get(action)
        if how is None or not room.bound:
            return state
        if action is A.SEND_COMMITTED:
            check(room.committed, "COMMITTED for pages that were freed")
        return self._say(state, number, TO_DECODE, how, room.chunks - 1 if how.kind is Kind.READY else 0)

    def prefill_hears(self, state: State, frame: Frame) -> State:
        """What `PrefillControl._frame` does."""
        room = state.rooms[frame.room]
        is_known = room.prefill is not P.ABSENT
        if frame.kind is Kind.ACK:
            state = with_room(state, frame.room, answered(room, TO_DECODE, frame.of, frame.index))
            is_event = is_known and frame.of in PREFILL_HEARS_ACK_OF
            return self.on_prefill(state, frame.room, PE.ACK, frame) if is_event else state
        if frame.kind is Kind.NACK:
            if not is_known:
                return state
            return self.on_prefill(with_room(state, frame.room, forgotten(room, TO_DECODE)), frame.room, PE.NACK, frame)
        state = with_room(state, frame.room, room._replace(bound=True))
        return self.on_prefill(state, frame.room, PREFILL_HEARS[frame.kind], frame)

    def prefill_moves(self, state: State, number: int) -> Iterator[State]:
        """The HTTP leg, compute, an abort, the pairing clock."""
        room = state.rooms[number]
        if room.leg == "to come":
            refused = A.REFUSE_LEG in self.prefill[room.prefill][PE.LEG].actions
            after = with_room(state, number, room._replace(leg="over" if refused else "waiting"))
            yield after if refused else self.on_prefill(after, number, PE.LEG)
        if room.leg == "computing" and room.chunks < self.bounds.chunks:
            last = room.chunks + 1 == self.bounds.chunks
            after = with_room(state, number, room._replace(chunks=room.chunks + 1))
            yield self.on_prefill(after, number, PE.LAST_CHUNK if last else PE.CHUNK)
        if room.leg in ("waiting", "computing"):
            yield self.on_prefill(state, number, PE.FAIL)
        if room.prefill in (P.ANNOUNCED, P.PARKED, P.TOMBSTONE):
            yield self.on_prefill(state, number, PE.EXPIRED)

    # -- decode -----------------------------------------------------------------------------------------------

    def on_decode(self, state: State, number: int, event: DecodeEvent, frame: Frame | None = None) -> State:
        """Take one step of decode's table, as `DecodeSteps.apply` does."""
        entry = self.decode[state.rooms[number].decode][event]
        state = with_room(state, number, state.rooms[number]._replace(decode=entry.state))
        for action in entry.actions:
            room = state.rooms[number]
            if action in FORGETS:
                state = with_room(state, number, forgotten(room, TO_PREFILL))
            state = self._decode_does(state, number, action, frame)
        return state

    def _decode_does(self, state: State, number: int, action: Action, frame: Frame | None) -> State:
        room = state.rooms[number]
        if action is A.TELL_LANDED:
            check(room.committed, "a token from KV that was not COMMITTED")
            check(room.intact, "a token from KV that was read after prefill freed it")
        told = {A.TELL_FAILED: "failed", A.TELL_LANDED: "landed", A.WANT_PAGES: "want"}.get(action)
        if action is A.TELL_FENCED and room.granted:
            told = "fenced"
        if told is not None:
            waiting = 0 if action is A.TELL_FAILED else room.waiting
            return with_room(state, number, room._replace(told=(*room.told, told), waiting=waiting))
        if action in (A.ACK, A.NACK):
            kind = Kind.ACK if action is A.ACK else Kind.NACK
            if frame is None:
                return state
            return self._put(state, Frame(TO_PREFILL, number, kind, frame.index, frame.kind))
        if action is A.POST_READS:
            posted = room._replace(reads=room.reads + room.waiting, waiting=0)
            return self._finish_reading(with_room(state, number, posted), number)
        if action is A.FENCE and room.reads == 0 and not room.doubtful:
            return self.on_decode(state, number, DE.FENCED)
        how = DECODE_SENDS.get(action)
        return state if how is None else self._say(state, number, TO_PREFILL, how)

    def _finish_reading(self, state: State, number: int) -> State:
        room = state.rooms[number]
        done = room.next == self.bounds.chunks and room.reads == 0 and room.waiting == 0
        return self.on_decode(state, number, DE.ALL_READ) if done else state

    def decode_hears(self, state: State, frame: Frame) -> State:
        """What `DecodeFrames.handle` does."""
        room = state.rooms[frame.room]
        if frame.kind is Kind.ACK:
            state = with_room(state, frame.room, answered(room, TO_PREFILL, frame.of, frame.index))
            event = DECODE_HEARS_ACK_OF.get(frame.of or "")
            return (
                state if event is None or room.decode is D.ABSENT else self.on_decode(state, frame.room, event, frame)
            )
        if frame.kind is Kind.NACK:
            state = with_room(state, frame.room, answered(room, TO_PREFILL, frame.of, 0))
            ends = frame.of in DECODE_HEARS_NACK_OF and room.decode is not D.ABSENT
            return self.on_decode(state, frame.room, DE.NACK, frame) if ends else state
        if frame.kind is Kind.READY and room.decode is not D.ABSENT:
            if frame.index < room.next:
                return self._put(state, Frame(TO_PREFILL, frame.room, Kind.ACK, frame.index, Kind.READY))
            if frame.index > room.next:
                return state
            room = answered(room, TO_PREFILL, Kind.OFFER, 0)
            state = with_room(state, frame.room, room._replace(next=room.next + 1, waiting=room.waiting + 1))
        if frame.kind is Kind.COMMITTED:
            state = with_room(state, frame.room, answered(state.rooms[frame.room], TO_PREFILL, Kind.COMMIT, 0))
        return self.on_decode(state, frame.room, DECODE_HEARS[frame.kind], frame)

    def decode_moves(self, state: State, number: int) -> Iterator[State]:
        """The HTTP leg, the link, READs, the fence, an abort, the clocks, and the loop."""
        room = state.rooms[number]
        if room.asked == "to come":
            yield self.on_decode(with_room(state, number, room._replace(asked="waiting")), number, DE.OPEN)
        if room.decode is D.OPENED:
            yield self.on_decode(state, number, DE.LINK_UP)
        if room.reads:
            read = room._replace(reads=room.reads - 1)
            intact = room.intact and (room.held or room.committed)
            done = with_room(state, number, read._replace(intact=intact))
            yield self._finish_reading(done, number) if room.decode is D.READING else done
            failed = with_room(state, number, read._replace(doubtful=True))
            yield self.on_decode(failed, number, DE.READ_FAILED) if room.decode is D.READING else failed
        if room.decode is D.FENCING:
            dropped = room._replace(reads=0, doubtful=False)
            yield self.on_decode(with_room(state, number, dropped), number, DE.FENCED)
        if room.asked == "waiting":
            yield self.on_decode(state, number, DE.FAIL)
        if room.decode in (D.OPENED, D.OFFERED, D.LANDED):
            yield self.on_decode(state, number, DE.EXPIRED)
        if room.pages != "none" and not room.granted:
            yield self.on_decode(with_room(state, number, room._replace(granted=True)), number, DE.GRANT)
        yield from self._loop_moves(state, number)

    def _loop_moves(self, state: State, number: int) -> Iterator[State]:
        """`scheduler.roles.Decode`: events in order; pages are granted some time after they were wanted."""
        room = state.rooms[number]
        if not room.told:
            return
        told, rest = room.told[0], room._replace(told=room.told[1:])
        if told == "want" and room.asked == "waiting":
            # Not yet granted: the next event may overtake it, when the pool is full.
            yield with_room(state, number, rest._replace(pages="granting"))
            if room.told[1:]:
                yield with_room(state, number, rest)
        elif told == "failed":
            pages = "none" if room.pages == "none" else "fencing"
            yield with_room(state, number, rest._replace(asked="over", pages=pages))
        elif told == "landed":
            yield with_room(state, number, self._freed(rest._replace(asked="over")))
        elif told == "fenced":
            yield with_room(state, number, self._freed(rest) if room.pages == "fencing" else rest)
        else:
            yield with_room(state, number, rest)

    def _freed(self, room: Room) -> Room:
        check(room.reads == 0 and not room.doubtful, "a page is free while a read into it is possible")
        return room._replace(pages="none")

    # -- the network, restarts, stops -------------------------------------------------------------------------

    def _break(self, state: State, noticed_by: str | None) -> State:
        """The connection breaks: what is in flight is gone, and each side notices in its own time."""
        unaware = {TO_PREFILL, TO_DECODE} - {noticed_by or ""}
        return state._replace(net=frozenset(), unaware=frozenset(unaware))

    def _notice(self, state: State, side: str) -> State:
        """A side notices that its peer is gone: rooms bound to it end, nothing is repeated to it."""
        state = state._replace(unaware=state.unaware - {side})
        for number in range(len(state.rooms)):
            room = state.rooms[number]
            if side == TO_PREFILL and room.bound:
                state = with_room(state, number, forgotten(room, TO_DECODE))
                state = self.on_prefill(state, number, PE.PEER_GONE)
                state = with_room(state, number, state.rooms[number]._replace(bound=False))
            elif side == TO_DECODE and room.decode is not D.ABSENT:
                room = forgotten(room, TO_PREFILL)
                # Its agent for that incarnation is dropped.
                state = with_room(state, number, room._replace(reads=0, doubtful=False))
                state = self.on_decode(state, number, DE.PEER_GONE)
        return state

    def _restart(self, state: State, side: str) -> State:
        state = self._break(state, noticed_by=side)._replace(restarts=state.restarts - 1, stopped=None)
        for number, room in enumerate(state.rooms):
            if side == TO_PREFILL:
                leg = room.leg if room.leg == "to come" else "over"
                fresh = forgotten(room, TO_DECODE)._replace(prefill=P.ABSENT, leg=leg, bound=False, held=False)
            else:
                asked = room.asked if room.asked == "to come" else "over"
                fresh = Room(room.prefill, D.ABSENT, room.leg, room.chunks, room.bound, room.held, asked=asked)
                fresh = fresh._replace(repeats=forgotten(room, TO_PREFILL).repeats, committed=room.committed)
            state = with_room(state, number, fresh)
        return state

    def successors(self, state: State) -> Iterator[State]:
        """Return every state that may come next. Raises Broken."""
        running = {TO_PREFILL, TO_DECODE} - {state.stopped or ""}
        for side in (TO_PREFILL, TO_DECODE):
            if state.restarts and not state.unaware:
                yield self._restart(state, side)
            if state.stops and state.stopped is None:
                yield state._replace(stopped=side, stops=state.stops - 1)
            if side in state.unaware and side in running:
                yield self._notice(state, side)
        if state.stopped is not None:
            yield state._replace(stopped=None)
            if not state.unaware:
                other = TO_DECODE if state.stopped == TO_PREFILL else TO_PREFILL
                yield self._notice(self._break(state, None), other)
        yield from self._travel(state, running)
        for number in range(len(state.rooms)):
            if TO_PREFILL in running:
                yield from self.prefill_moves(state, number)
            if TO_DECODE in running:
                yield from self.decode_moves(state, number)

    def _travel(self, state: State, running: set[str]) -> Iterator[State]:
        for frame in state.net:
            without = state._replace(net=state.net - {frame})
            yield without
            if frame.to in running and not state.unaware:
                hear = self.prefill_hears if frame.to == TO_PREFILL else self.decode_hears
                yield hear(without, frame)
                yield hear(state, frame)
        for room in state.rooms:
            for frame in room.repeats - state.net:
                sender = TO_DECODE if frame.to == TO_PREFILL else TO_PREFILL
                if sender in running:
                    yield self._put(state, frame)
