"""Prefill's control thread: runs the `PREFILL` table for all rooms and answers the decodes that connect."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as ThreadEvent

import zmq

from engine.clock import Clock
from engine.config import EngineConfig
from engine.observe.journal import Journal
from engine.observe.records import Stage
from engine.transfer import frames
from engine.transfer.clocks import PeerPulse
from engine.transfer.control import ControlLoop, reason_of_end
from engine.transfer.frames import Frame, Geometry, Kind
from engine.transfer.interface import Committed, Failed, FailReason, Paired
from engine.transfer.outbox import key_of
from engine.transfer.peer_table import PeerTable
from engine.transfer.prefill_rooms import DecodePeer, FailLeg, Leg, PrefillRoom
from engine.transfer.rooms import Action, PrefillEvent, PrefillState, prefill_step, shown
from engine.transfer.source_worker import ChunkSummed, SourceWorker

MOST_UNPAIRED = 4096
"""Parked offers and tombstones kept; above it the oldest is forgotten."""

PrefillItem = Leg | FailLeg | ChunkSummed
READABLE = (PrefillState.READING, PrefillState.COMPUTED)
ENDED = (PrefillState.LANDED, PrefillState.FAILED, PrefillState.TOMBSTONE)


class PrefillControl(ControlLoop[PrefillItem]):
    """See the module."""

    def __init__(
        self,
        config: EngineConfig,
        contract: dict[str, str],
        geometry: Geometry,
        page_bytes: int,
        clock: Clock,
        journal: Journal,
        stopping: ThreadEvent,
    ) -> None:
        super().__init__(config, contract, geometry, clock, journal, stopping)
        self.rooms: dict[int, PrefillRoom] = {}
        self._by_rid: dict[str, PrefillRoom] = {}
        self._page_bytes = page_bytes
        self._worker: SourceWorker | None = None
        self.peers = PeerTable(self, self._context)
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

    def serve(self, worker: SourceWorker, nixl_metadata: bytes) -> None:
        """Take the NIXL thread and what decodes need to reach its agent."""
        self._worker = worker
        self.peers.nixl_metadata = nixl_metadata

    # -- the loop's frame ------------------------------------------------------------------------------------

    def _sockets(self) -> list[zmq.Socket[bytes]]:
        return [self.peers.channel.socket]

    def _pulses(self) -> list[PeerPulse]:
        return [peer.pulse for peer in self.peers.known.values()]

    def _receive(self) -> None:
        for peer in self.peers.lost_by_sending():
            self._lose(peer, FailReason.PEER_GONE, f"the connection to {peer.instance} broke")
        while (received := self.peers.channel.receive()) is not None:
            envelope = self.peers.hear(*received)
            if envelope is not None:
                self._greet_or_frame(received[0], envelope)

    def _greet_or_frame(self, routing_id: bytes, envelope: frames.Envelope) -> None:
        frame = envelope.body
        if isinstance(frame, frames.Hello):
            for older in self.peers.replaced_by(routing_id, envelope.src):
                self._lose(older, FailReason.PEER_GONE, f"{older.instance} came back on another connection")
            self.peers.greet(routing_id, envelope.src, frame)
            self._stir()
            return
        peer = self.peers.known.get(routing_id)
        if peer is None:
            self.peers.nack_stranger(routing_id, envelope.src, frame, "unknown peer: say HELLO first")
            return
        try:
            self._frame(peer, frame)
        except Exception as error:
            room = self.rooms.get(frames.room_of(frame) or -1)
            if room is not None:
                self._apply(room, PrefillEvent.FAIL, FailReason.READ_FAILED, f"control thread crashed: {error}")
            raise

    def _obey(self, item: PrefillItem) -> None:
        match item:
            case Leg():
                self._announce(item)
            case FailLeg():
                if (room := self._by_rid.get(item.rid)) is not None:
                    self._apply(room, PrefillEvent.FAIL, item.reason, item.detail)
            case ChunkSummed():
                self._chunk(item)

    def _abandon(self, item: PrefillItem, detail: str) -> None:
        room = self._by_rid.get(item.rid)
        if room is not None:
            self._apply(room, PrefillEvent.FAIL, FailReason.READ_FAILED, detail)
        elif isinstance(item, Leg):
            self.events.put(Failed(item.rid, FailReason.READ_FAILED, detail))

    def _tick(self, now: float) -> None:
        for peer in list(self.peers.known.values()):
            waited = self.config.silence_timeout_s
            if peer.pulse.is_silent(now, waited):
                detail = f"no frame from {peer.instance} for {waited:g} s"
                self._lose(peer, FailReason.PEER_SILENT, detail)
                continue
            self.peers.beat(peer, now)
            if peer.pulse.is_stuck(now, self.config.stuck_timeout_s):
                detail = f"the loop of {peer.instance} has not moved for {now - peer.pulse.moved_at:.0f} s"
                for room in self._rooms_of(peer):
                    if room.state not in ENDED:
                        self._apply(room, PrefillEvent.FAIL, FailReason.PEER_STUCK, detail)
        for room in list(self.rooms.values()):
            if now >= room.deadline:
                self._expire(room)
        self._bound()

    def _leave(self) -> None:
        self.peers.leave()

    def _expire(self, room: PrefillRoom) -> None:
        missing = "offer from decode" if room.state is PrefillState.ANNOUNCED else "prefill leg"
        waited = self.config.pairing_timeout_s
        detail = f"the {missing} for room {room.number} did not come within {waited:g} s"
        reason = None if room.state is PrefillState.TOMBSTONE else FailReason.PAIRING_TIMEOUT
        self._apply(room, PrefillEvent.EXPIRED, reason, detail)

    def _bound(self) -> None:
        """Forget the oldest rooms that hold nothing, should a peer make too many."""
        unpaired = [room for room in self.rooms.values() if room.state in (PrefillState.PARKED, PrefillState.TOMBSTONE)]
        for room in unpaired[: max(len(unpaired) - MOST_UNPAIRED, 0)]:
            room.state = PrefillState.ABSENT
            self._drop(room)

    # -- peers -----------------------------------------------------------------------------------------------

    def _rooms_of(self, peer: DecodePeer) -> list[PrefillRoom]:
        return [room for room in self.rooms.values() if room.peer is peer]

    def _lose(self, peer: DecodePeer, reason: FailReason, detail: str) -> None:
        self.peers.forget(peer)
        for room in self._rooms_of(peer):
            self._apply(room, PrefillEvent.PEER_GONE, reason, detail)

    def _stir(self) -> None:
        if self._worker is not None:
            self._worker.rooms_reading = sum(room.state in READABLE for room in self.rooms.values())
            self._worker.stir()

    # -- from the loop and the NIXL thread -------------------------------------------------------------------

    def _announce(self, leg: Leg) -> None:
        room = self.rooms.get(leg.room) or self._new_room(leg.room)
        if Action.REFUSE_LEG in prefill_step(room.state, PrefillEvent.LEG).actions:
            reason = room.reason or FailReason.ABORTED
            detail = room.detail or f"room {leg.room} is already in use"
            leg.record.state, leg.record.reason = "failed", reason
            self.events.put(Failed(leg.rid, reason, detail))
            return
        room.leg = leg
        self._by_rid[leg.rid] = room
        difference = leg.difference(room.offer) if room.offer else None
        event = PrefillEvent.LEG_DIFFERS if difference else PrefillEvent.LEG
        self._apply(room, event, FailReason.PROMPT_MISMATCH if difference else None, difference or "")

    def _new_room(self, number: int) -> PrefillRoom:
        room = self.rooms[number] = PrefillRoom(number)
        return room

    def _chunk(self, summed: ChunkSummed) -> None:
        room = self._by_rid.get(summed.rid)
        if room is None:
            return
        if summed.error:
            self._apply(room, PrefillEvent.FAIL, FailReason.READ_FAILED, f"checksums failed: {summed.error}")
            return
        chunk = summed.chunk
        last = chunk.first is not None
        ready = frames.Ready(room.number, chunk.first_page, list(chunk.pages), summed.checksums, last, chunk.first)
        self._apply(room, PrefillEvent.LAST_CHUNK if last else PrefillEvent.CHUNK, frame=ready)

    # -- frames ----------------------------------------------------------------------------------------------

    def _frame(self, peer: DecodePeer, frame: Frame) -> None:
        match frame:
            case frames.Heartbeat():
                peer.pulse.beat(self.clock.monotonic(), frame.loop_tick, frame.longest_step_s)
            case frames.Goodbye():
                self._lose(peer, FailReason.PEER_GONE, f"{peer.instance} left: {frame.detail}")
            case frames.Offer():
                self._offer(peer, frame)
            case frames.Commit():
                self._room_event(peer, frame, PrefillEvent.COMMIT)
            case frames.Abort() | frames.Refused():
                detail = f"{peer.instance}: {frame.detail}"
                self._room_event(peer, frame, PrefillEvent.ABORT, reason_of_end(frame), detail)
            case frames.Ack():
                peer.outbox.answer((frame.room, frame.of, frame.index))
                if frame.of in (Kind.COMMITTED, Kind.FAILED, Kind.REFUSED) and frame.room in self.rooms:
                    self._room_event(peer, frame, PrefillEvent.ACK)
            case frames.Nack():
                self._nacked(peer, frame)
            case _:
                self.peers.nack(peer, frame, "not a frame for prefill")

    def _nacked(self, peer: DecodePeer, nack: frames.Nack) -> None:
        if nack.room is None or nack.room not in self.rooms:
            return
        peer.outbox.forget_room(nack.room)
        detail = f"{peer.instance} cannot use {nack.of}: {nack.reason}"
        self._room_event(peer, nack, PrefillEvent.NACK, FailReason.PEER_GONE, detail)

    def _offer(self, peer: DecodePeer, offer: frames.Offer) -> None:
        room = self.rooms.get(offer.room)
        leg = room.leg if room else None
        if peer.refused is not None:
            event, reason, detail = PrefillEvent.OFFER_UNWANTED, FailReason.CONTRACT_MISMATCH, peer.refused
        elif self.draining and room is None:
            event, reason, detail = PrefillEvent.OFFER_UNWANTED, FailReason.DRAINING, "prefill is draining"
        elif leg is not None and (difference := leg.difference(offer)) is not None:
            event, reason, detail = PrefillEvent.OFFER_DIFFERS, FailReason.PROMPT_MISMATCH, difference
        else:
            self._room_event(peer, offer, PrefillEvent.OFFER)
            return
        self._room_event(peer, offer, event, reason, detail)

    def _room_event(
        self,
        peer: DecodePeer,
        frame: Frame,
        event: PrefillEvent,
        reason: FailReason | None = None,
        detail: str = "",
    ) -> None:
        number = frames.room_of(frame)
        if number is None:
            return
        room = self.rooms.get(number) or self._new_room(number)
        if room.peer is None:
            room.peer = peer
        if room.peer is not peer:
            self.peers.nack(peer, frame, "the room is bound to another incarnation")
            return
        if isinstance(frame, frames.Offer) and room.offer is None:
            room.offer = frame
        self._apply(room, event, reason, detail, frame)

    # -- the table and its actions ---------------------------------------------------------------------------

    def _apply(
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
        if room.state is not before:
            self._entered(room, before)
            if reason is not None:
                room.reason, room.detail = reason, detail
        for action in entry.actions:
            self._actions[action](room, frame)
        if room.state is PrefillState.ABSENT:
            self._drop(room)
        if (before in READABLE) != (room.state in READABLE):
            self._stir()

    def _entered(self, room: PrefillRoom, before: PrefillState) -> None:
        state = room.state
        waits = state in (PrefillState.ANNOUNCED, PrefillState.PARKED, PrefillState.TOMBSTONE)
        room.deadline = self.clock.monotonic() + self.config.pairing_timeout_s if waits else float("inf")
        if room.leg is not None and state not in (PrefillState.ABSENT, *ENDED):
            room.leg.record.state = shown(state)

    def _drop(self, room: PrefillRoom) -> None:
        if self.rooms.get(room.number) is room:
            del self.rooms[room.number]
        if room.leg is not None:
            self._by_rid.pop(room.leg.rid, None)

    def _tell_paired(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.leg is not None and room.peer is not None
        record = room.leg.record
        record.peer, record.peer_incarnation = room.peer.instance, room.peer.incarnation
        self._journal.mark(record, Stage.PAIRED)
        self.events.put(Paired(room.leg.rid))

    def _tell_committed(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.leg is not None and room.peer is not None
        record = room.leg.record
        record.state = shown(PrefillState.LANDED)
        self._journal.mark(record, Stage.LANDED)
        self.counters.transfers["landed", room.peer.instance] += 1
        self.counters.bytes_read[room.peer.instance] += record.kv_bytes
        self.events.put(Committed(room.leg.rid))

    def _tell_failed(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.leg is not None
        reason = room.reason or FailReason.ABORTED
        record = room.leg.record
        record.state, record.reason = "failed", reason
        if room.peer is not None:
            room.peer.outbox.forget_room(room.number)
        self.counters.transfers[reason, room.peer.instance if room.peer else ""] += 1
        self.events.put(Failed(room.leg.rid, reason, room.detail))

    def _ack(self, room: PrefillRoom, frame: Frame | None) -> None:
        """Acknowledge what came; with no frame the HTTP leg came last, and the parked OFFER is answered."""
        answered = frame or room.offer
        if answered is not None and room.peer is not None:
            self.peers.send(room.peer, frames.Ack(*key_of(answered)))

    def _nack(self, room: PrefillRoom, frame: Frame | None) -> None:
        if frame is not None and room.peer is not None:
            self.peers.nack(room.peer, frame, f"not expected in state {room.state}")

    def _send_ready(self, room: PrefillRoom, frame: Frame | None) -> None:
        assert room.leg is not None and room.peer is not None and isinstance(frame, frames.Ready)
        room.leg.record.kv_bytes += len(frame.pages) * self._page_bytes
        self._stir()
        self.peers.push(room.peer, frame)

    def _send_committed(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.peer is not None
        room.peer.outbox.forget_room(room.number)
        self.peers.push(room.peer, frames.Committed(room.number))

    def _send_gone(self, room: PrefillRoom, _: Frame | None) -> None:
        assert room.peer is not None
        self.peers.send(room.peer, frames.Gone(room.number, room.reason or FailReason.ABORTED, room.detail))

    def _push_end(self, room: PrefillRoom, _: Frame | None) -> None:
        if room.peer is None:
            return
        reason = room.reason or FailReason.ABORTED
        unwanted = reason in (FailReason.CONTRACT_MISMATCH, FailReason.DRAINING)
        kind = frames.Refused if unwanted else frames.Failed
        self.peers.push(room.peer, kind(room.number, reason, room.detail))
