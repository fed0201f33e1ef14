"""Decode's half of a room: its table's runner (`decode_steps`, `decode_frames`), READs and loop, kept short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.transfer.protocol.frames import Kind
from engine.transfer.protocol.meaning import (
    DECODE_HEARS,
    DECODE_HEARS_ACK_OF,
    DECODE_HEARS_NACK_OF,
    DECODE_SENDS,
    FORGETS,
)
from engine.transfer.protocol.rooms import Action, DecodeEvent, DecodeState, Entry
from tests.engine.transfer.explored_prefill import put, say
from tests.engine.transfer.explored_state import TO_PREFILL, Around, Bounds, Frame, Room, answered, check, forgotten

D, DE, A = DecodeState, DecodeEvent, Action
DecodeTable = Mapping[DecodeState, Mapping[DecodeEvent, Entry]]
TOLD = {A.TELL_FAILED: "failed", A.TELL_LANDED: "landed", A.WANT_PAGES: "want"}


class DecodeHalf:
    """What decode does with one room while the rest of the world is as `around` says."""

    def __init__(self, bounds: Bounds, table: DecodeTable, around: Around) -> None:
        self._bounds = bounds
        self._table = table
        self._around = around

    def on(self, room: Room, event: DecodeEvent, frame: Frame | None = None) -> Room:
        """Take one step of the table, as `DecodeSteps.apply` does. Raises Broken."""
        entry = self._table[room.decode][event]
        assert isinstance(entry.state, DecodeState)
        room = room._replace(decode=entry.state)
        for action in entry.actions:
            if action in FORGETS:
                room = forgotten(room, TO_PREFILL)
            room = self._do(room, action, frame)
        return room

    def _do(self, room: Room, action: Action, frame: Frame | None) -> Room:
        if action is A.TELL_LANDED:
            check(room.committed, "a token from KV that was not COMMITTED")
            check(room.intact, "a token from KV that was read after prefill freed it")
        told = "fenced" if action is A.TELL_FENCED and room.granted else TOLD.get(action)
        if told is not None:
            waiting = 0 if action is A.TELL_FAILED else room.waiting
            return room._replace(told=(*room.told, told), waiting=waiting)
        if action in (A.ACK, A.NACK):
            if frame is None:
                return room
            kind = Kind.ACK if action is A.ACK else Kind.NACK
            return put(room, Frame(TO_PREFILL, kind, frame.index, frame.kind), self._bounds, self._around)
        if action is A.POST_READS:
            check(room.takes_from_decode, "a READ into a page that is free")
            return self._finish_reading(room._replace(reads=room.reads + room.waiting, waiting=0))
        if action is A.FENCE and room.reads == 0 and not room.doubtful:
            return self.on(room, DE.FENCED)
        how = DECODE_SENDS.get(action)
        return room if how is None else say(room, TO_PREFILL, how, 0, self._bounds, self._around)

    def _finish_reading(self, room: Room) -> Room:
        is_done = room.next == self._bounds.chunks and room.reads == 0 and room.waiting == 0
        return self.on(room, DE.ALL_READ) if is_done else room

    def hear(self, room: Room, frame: Frame) -> Room:
        """Do what `DecodeFrames.handle` does. Raises Broken."""
        is_known = room.decode is not D.ABSENT
        if frame.kind is Kind.ACK:
            event = DECODE_HEARS_ACK_OF.get(frame.of or "")
            room = answered(room, TO_PREFILL, frame.of, frame.index)
            return room if event is None or not is_known else self.on(room, event, frame)
        if frame.kind is Kind.NACK:
            room = answered(room, TO_PREFILL, frame.of, 0)
            return self.on(room, DE.NACK, frame) if is_known and frame.of in DECODE_HEARS_NACK_OF else room
        if frame.kind is Kind.READY and is_known:
            return self._hear_ready(room, frame)
        if frame.kind is Kind.COMMITTED:
            room = answered(room, TO_PREFILL, Kind.COMMIT, 0)
        return self.on(room, DECODE_HEARS[frame.kind], frame)

    def _hear_ready(self, room: Room, frame: Frame) -> Room:
        if frame.index < room.next:
            return put(room, Frame(TO_PREFILL, Kind.ACK, frame.index, Kind.READY), self._bounds, self._around)
        if frame.index > room.next:
            return room
        room = answered(room, TO_PREFILL, Kind.OFFER, 0)
        return self.on(room._replace(next=room.next + 1, waiting=room.waiting + 1), DECODE_HEARS[Kind.READY], frame)

    def moves(self, room: Room) -> Iterator[Room]:
        """The HTTP leg, the link, READs, an abort, the clocks, and the loop. Raises Broken."""
        if room.asked == "to come":
            yield self.on(room._replace(asked="waiting"), DE.OPEN)
        if room.decode is D.OPENED:
            yield self.on(room, DE.LINK_UP)
        if room.reads:
            yield from self._read_ends(room)
        if room.decode is D.FENCING and room.reads == 0 and not room.doubtful:
            yield self.on(room, DE.FENCED)
        if room.asked == "waiting" and not self._around.is_patient:
            yield self.on(room, DE.FAIL)
        if room.decode in (D.OPENED, D.OFFERED, D.LANDED):
            yield self.on(room, DE.EXPIRED)
        if room.takes_from_decode and not room.granted:
            yield self.on(room._replace(granted=True), DE.GRANT)
        if room.pages == "wanted" and not self._around.decode_is_full:
            yield room._replace(pages="granted")
        if room.told:
            yield self._loop_takes(room._replace(told=room.told[1:]), room.told[0])

    def _read_ends(self, room: Room) -> Iterator[Room]:
        """One READ is done, or in error."""
        read = room._replace(reads=room.reads - 1)
        done = read._replace(intact=room.intact and (room.held or room.committed))
        failed = read._replace(doubtful=True)
        is_awaited = room.decode is D.READING
        yield self._finish_reading(done) if is_awaited else done
        yield self.on(failed, DE.READ_FAILED) if is_awaited else failed

    def fences_by_dropping(self, room: Room) -> Iterator[Room]:
        """Drop the agent of the link, where a READ of this failed room may be unfinished. Raises Broken."""
        if room.decode is D.FENCING and (room.reads or room.doubtful):
            yield self.on(room._replace(reads=0, doubtful=False), DE.FENCED)

    @staticmethod
    def agent_dropped(room: Room) -> Room:
        """Return what the dropping for another room does to this one: a failed one is out of reach too.

        The READs of one that goes on are posted again by the next agent: to them nothing has happened.
        """
        return room._replace(reads=0, doubtful=False) if room.decode is D.FENCING else room

    def _loop_takes(self, room: Room, told: str) -> Room:
        """Do what `scheduler.roles.Decode` does with one event; pages are granted some time after they were wanted."""
        if told == "want":
            return room._replace(pages="wanted") if room.asked == "waiting" else room
        if told == "failed":
            return room._replace(asked="over", pages="fencing" if room.takes_from_decode else "none")
        if told == "landed":
            return self._freed(room._replace(asked="over"))
        return self._freed(room) if room.pages == "fencing" else room

    def _freed(self, room: Room) -> Room:
        check(room.reads == 0 and not room.doubtful, "a page is free while a read into it is possible")
        return room._replace(pages="none")

    def peer_gone(self, room: Room) -> Room:
        """End a room whose peer is gone: the agent for that incarnation is dropped. Raises Broken."""
        if room.decode is D.ABSENT:
            return room
        return self.on(forgotten(room, TO_PREFILL)._replace(reads=0, doubtful=False), DE.PEER_GONE)

    @staticmethod
    def restarted(room: Room) -> Room:
        """Return the room as a new process knows it."""
        asked = room.asked if room.asked == "to come" else "over"
        return Room(
            room.prefill,
            leg=room.leg,
            chunks=room.chunks,
            bound=room.bound,
            held=room.held,
            asked=asked,
            repeats=forgotten(room, TO_PREFILL).repeats,
            committed=room.committed,
        )
