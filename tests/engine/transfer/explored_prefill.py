"""Prefill's half of a room: its table's runner (`prefill_steps`, `prefill_control`) and loop, kept short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.transfer.protocol.frames import Kind
from engine.transfer.protocol.meaning import FORGETS, PREFILL_HEARS, PREFILL_HEARS_ACK_OF, PREFILL_SENDS, Sending
from engine.transfer.protocol.rooms import Action, Entry, PrefillEvent, PrefillState
from tests.engine.transfer.explored_state import (
    TO_DECODE,
    TO_PREFILL,
    Around,
    Bounds,
    Frame,
    Room,
    answered,
    check,
    forgotten,
)

P, PE, A = PrefillState, PrefillEvent, Action
PrefillTable = Mapping[PrefillState, Mapping[PrefillEvent, Entry]]


def put(room: Room, frame: Frame, bounds: Bounds, around: Around) -> Room:
    """Put a frame on the wire; one that finds no room there counts as lost."""
    if not around.is_connected or len(room.net) + around.frames >= bounds.in_flight:
        return room
    return room._replace(net=room.net | {frame})


def say(room: Room, to: str, how: Sending, index: int, bounds: Bounds, around: Around) -> Room:
    """Send as an action of the tables does."""
    frame = Frame(to, how.kind, index)
    if how.replaces:
        room = forgotten(room, to)
    if how.is_repeated:
        room = room._replace(repeats=room.repeats | {frame})
    return put(room, frame, bounds, around)


class PrefillHalf:
    """What prefill does with one room while the rest of the world is as `around` says."""

    def __init__(self, bounds: Bounds, table: PrefillTable, around: Around) -> None:
        self._bounds = bounds
        self._table = table
        self._around = around

    def on(self, room: Room, event: PrefillEvent, frame: Frame | None = None) -> Room:
        """Take one step of the table, as `PrefillSteps.apply` does. Raises Broken."""
        entry = self._table[room.prefill][event]
        assert isinstance(entry.state, PrefillState)
        room = room._replace(prefill=entry.state)
        for action in entry.actions:
            if action in FORGETS:
                room = forgotten(room, TO_DECODE)
            room = self._do(room, action, frame)
        if entry.state is P.ABSENT:
            check(not room.held, "leak: prefill forgot a room that holds pages")
            room = room._replace(bound=False)
        return room

    def _do(self, room: Room, action: Action, frame: Frame | None) -> Room:
        if action is A.TELL_PAIRED:
            return room._replace(leg="paired")
        if action is A.TELL_FAILED:
            return room._replace(leg="over", held=False)
        if action is A.TELL_COMMITTED:
            check(room.held, "COMMITTED for pages that were freed")
            return room._replace(leg="over", held=False, committed=True)
        if not room.bound:
            return room
        if action in (A.ACK, A.NACK):
            kind = Kind.ACK if action is A.ACK else Kind.NACK
            of = frame or Frame(TO_PREFILL, Kind.OFFER)
            return put(room, Frame(TO_DECODE, kind, of.index, of.kind), self._bounds, self._around)
        how = PREFILL_SENDS.get(action)
        if how is None:
            return room
        if action is A.SEND_COMMITTED:
            check(room.committed, "COMMITTED for pages that were freed")
        index = room.chunks - 1 if how.kind is Kind.READY else 0
        return say(room, TO_DECODE, how, index, self._bounds, self._around)

    def hear(self, room: Room, frame: Frame) -> Room:
        """Do what `PrefillControl._frame` does. Raises Broken."""
        is_known = room.prefill is not P.ABSENT
        if frame.kind is Kind.ACK:
            room = answered(room, TO_DECODE, frame.of, frame.index)
            return self.on(room, PE.ACK, frame) if is_known and frame.of in PREFILL_HEARS_ACK_OF else room
        if frame.kind is Kind.NACK:
            return self.on(forgotten(room, TO_DECODE), PE.NACK, frame) if is_known else room
        return self.on(room._replace(bound=True), PREFILL_HEARS[frame.kind], frame)

    def moves(self, room: Room) -> Iterator[Room]:
        """The HTTP leg, pages, compute, an abort, the pairing clock. Raises Broken."""
        if room.leg == "to come":
            refused = A.REFUSE_LEG in self._table[room.prefill][PE.LEG].actions
            after = room._replace(leg="over" if refused else "waiting")
            yield after if refused else self.on(after, PE.LEG)
        if room.leg == "paired" and not self._around.prefill_is_full:
            yield room._replace(leg="computing", held=True)
        if room.leg == "computing" and room.chunks < self._bounds.chunks:
            is_last = room.chunks + 1 == self._bounds.chunks
            yield self.on(room._replace(chunks=room.chunks + 1), PE.LAST_CHUNK if is_last else PE.CHUNK)
        if room.leg in ("waiting", "paired", "computing") and not self._around.is_patient:
            yield self.on(room, PE.FAIL)
        if room.prefill in (P.ANNOUNCED, P.PARKED, P.TOMBSTONE):
            yield self.on(room, PE.EXPIRED)

    def peer_gone(self, room: Room) -> Room:
        """End a room whose peer is gone, and repeat nothing to it. Raises Broken."""
        if not room.bound:
            return room
        return self.on(forgotten(room, TO_DECODE), PE.PEER_GONE)._replace(bound=False)

    @staticmethod
    def restarted(room: Room) -> Room:
        """Return the room as a new process knows it."""
        leg = room.leg if room.leg == "to come" else "over"
        return forgotten(room, TO_DECODE)._replace(prefill=P.ABSENT, leg=leg, bound=False, held=False)
