"""Carries out the `PREFILL` table: one step at a time, with the actions it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.observe.records import Stage
from engine.transfer.interface import Committed, Failed, FailReason, Paired
from engine.transfer.prefill.rooms import DecodePeer, PrefillRoom
from engine.transfer.protocol import frames
from engine.transfer.protocol.frames import Frame
from engine.transfer.protocol.meaning import FORGETS, PREFILL_SENDS
from engine.transfer.protocol.outbox import key_of
from engine.transfer.protocol.rooms import Action, PrefillEvent, PrefillState, prefill_step, shown

if TYPE_CHECKING:
    from engine.transfer.prefill.control import PrefillControl

READABLE = (PrefillState.READING, PrefillState.COMPUTED)
ENDED = (PrefillState.LANDED, PrefillState.FAILED, PrefillState.TOMBSTONE)


class PrefillSteps:
    """All rooms of a prefill; part of its control thread."""

    def __init__(self, control: PrefillControl, page_bytes: int) -> None:
        self.rooms: dict[int, PrefillRoom] = {}
        """By room number."""
        self.by_rid: dict[str, PrefillRoom] = {}
        self._control = control
        self._page_bytes = page_bytes
        self._actions: dict[Action, Callable[[PrefillRoom, Frame | None], None]] = {
            Action.TELL_PAIRED: self._tell_paired,
            Action.TELL_COMMITTED: self._tell_committed,
            Action.TELL_FAILED: self._tell_failed,
            Action.ACK: self._ack,
            Action.NACK: self._nack,
            Action.SEND_READY: self._send_ready,
            Action.SEND_COMMITTED: self._send_committed,
            Action.SEND_GONE: self._send_gone,
            Action.PUSH_END: self._push_end,
            Action.REFUSE_LEG: lambda room, frame: None,
        }

    def new_room(self, number: int) -> PrefillRoom:
        """Add a room that nothing is known of yet."""
        room = self.rooms[number] = PrefillRoom(number)
        return room

    def apply(
        self,
        room: PrefillRoom,
        event: PrefillEvent,
        reason: FailReason | None = None,
        detail: str = "",
        frame: Frame | None = None,
    ) -> None:
        """Take one step of the table and carry out its actions."""
        before = room.state
        entry = prefill_step(before, event)
        assert isinstance(entry.state, PrefillState)
        room.state = entry.state
        if (flight := self._control.journal.flight) is not None:
            rid = room.leg.rid if room.leg is not None else ""
            flight.room("prefill", room.number, before, event, entry.state, rid)
        if room.state is not before:
            self._entered(room, before)
            if reason is not None:
                room.reason, room.detail = reason, detail
        for action in entry.actions:
            if action in FORGETS and room.peer is not None:
                room.peer.outbox.forget_room(room.number)
            self._actions[action](room, frame)
        if room.state is PrefillState.ABSENT:
            self.drop(room)
        if (before in READABLE) != (room.state in READABLE):
            self._control.sources.stir()

    def _entered(self, room: PrefillRoom, before: PrefillState) -> None:
        state = room.state
        waits = state in (PrefillState.ANNOUNCED, PrefillState.PARKED, PrefillState.TOMBSTONE)
        room.deadline = (
            self._control.clock.monotonic() + self._control.config.pairing_timeout_s if waits else float("inf")
        )
        if room.leg is not None and state not in (PrefillState.ABSENT, *ENDED):
            room.leg.record.state = shown(state)

    def drop(self, room: PrefillRoom) -> None:
        """Forget a room."""
        if self.rooms.get(room.number) is room:
            del self.rooms[room.number]
        if room.leg is not None:
            self.by_rid.pop(room.leg.rid, None)

    def _tell_paired(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.leg is not None and room.peer is not None
        record = room.leg.record
        record.peer, record.peer_incarnation = room.peer.instance, room.peer.incarnation
        self._control.journal.mark(record, Stage.PAIRED)
        self._control.events.put(Paired(room.leg.rid))

    def _tell_committed(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.leg is not None and room.peer is not None
        record = room.leg.record
        record.state = shown(PrefillState.LANDED)
        self._control.journal.mark(record, Stage.LANDED)
        self._control.counters.transfers["landed", room.peer.instance] += 1
        self._control.counters.bytes_read[room.peer.instance] += record.kv_bytes
        self._control.events.put(Committed(room.leg.rid))

    def _tell_failed(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.leg is not None
        reason = room.reason or FailReason.ABORTED
        record = room.leg.record
        record.state, record.reason = "failed", reason
        self._control.counters.transfers[reason, room.peer.instance if room.peer else ""] += 1
        self._control.events.put(Failed(room.leg.rid, reason, room.detail))

    def _ack(self, room: PrefillRoom, frame: Frame | None) -> None:
        """Acknowledge what came; with no frame the HTTP leg came last, and the parked OFFER is answered."""
        answered = frame or room.offer
        if answered is not None and room.peer is not None:
            self._control.peers.send(room.peer, frames.Ack(*key_of(answered)))

    def _nack(self, room: PrefillRoom, frame: Frame | None) -> None:
        if frame is not None and room.peer is not None:
            self._control.peers.nack(room.peer, frame, f"not expected in state {room.state}")

    def _send_ready(self, room: PrefillRoom, frame: Frame | None) -> None:
        assert room.leg is not None and room.peer is not None and isinstance(frame, frames.Ready)
        room.leg.record.kv_bytes += len(frame.pages) * self._page_bytes
        self._control.sources.stir()
        self._say(room.peer, Action.SEND_READY, frame)

    def _send_committed(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.peer is not None
        self._say(room.peer, Action.SEND_COMMITTED, frames.Committed(room.number))

    def _send_gone(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.peer is not None
        gone = frames.Gone(room.number, room.reason or FailReason.ABORTED, room.detail)
        self._say(room.peer, Action.SEND_GONE, gone)

    def _push_end(self, room: PrefillRoom, _: Frame | None) -> None:
        if room.peer is None:
            return
        reason = room.reason or FailReason.ABORTED
        unwanted = reason in (FailReason.CONTRACT_MISMATCH, FailReason.DRAINING)
        kind = frames.Refused if unwanted else frames.Failed
        self._say(room.peer, Action.PUSH_END, kind(room.number, reason, room.detail))

    def _say(self, peer: DecodePeer, action: Action, frame: Frame) -> None:
        how = PREFILL_SENDS[action]
        if how.replaces:
            peer.outbox.forget_room(frames.room_of(frame) or 0)
        (self._control.peers.push if how.is_repeated else self._control.peers.send)(peer, frame)
