"""Prefill's control thread: runs the `PREFILL` table for all rooms and answers the decodes that connect."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as ThreadEvent

import msgspec
import zmq

from engine.clock import Clock
from engine.config import EngineConfig
from engine.kvcache.layout import KVLayout
from engine.observe.journal import Journal
from engine.transfer.control.loop import ControlLoop, reason_of_end
from engine.transfer.data.plane_messages import Opened
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.data.source_orders import Chunk, SourceChanged, SourceOrder
from engine.transfer.interface import Failed, FailReason
from engine.transfer.prefill.canary import CanarySource
from engine.transfer.prefill.peer_table import PeerTable
from engine.transfer.prefill.ranks import FromRank, SourceRanks
from engine.transfer.prefill.rooms import DecodePeer, FailLeg, Leg, PrefillRoom
from engine.transfer.prefill.steps import ENDED, PrefillSteps
from engine.transfer.protocol import frames
from engine.transfer.protocol.clocks import PeerPulse
from engine.transfer.protocol.frames import Frame, Kind, kind_of
from engine.transfer.protocol.meaning import PREFILL_HEARS, PREFILL_HEARS_ACK_OF
from engine.transfer.protocol.rooms import Action, PrefillEvent, PrefillState, prefill_step

MOST_UNPAIRED = 4096
"""Parked offers and tombstones kept; above it the oldest is forgotten."""
LANDING_WAIT_S = 1.0
"""How long one that leaves waits for the ACKs of COMMITTED: a decode reads one within some 20 ms, if it runs."""

PrefillItem = Leg | FailLeg | Chunk | FromRank


class PrefillControl(ControlLoop[PrefillItem]):
    """See the module."""

    def __init__(
        self,
        config: EngineConfig,
        contract: dict[str, str],
        layout: KVLayout,
        ranks: InstanceRanks,
        clock: Clock,
        journal: Journal,
        stopping: ThreadEvent,
        own: Callable[[SourceOrder], None],
    ) -> None:
        """`own` takes the orders for rank 0's source worker."""
        super().__init__(config, contract, layout, ranks, clock, journal, stopping)
        self.sources = SourceRanks(self, self._context, ranks, own)
        self.canary: CanarySource | None = None
        self.peers = PeerTable(self, self._context)
        heads = len({head for held in ranks.kv_heads for head in held})
        self.steps = PrefillSteps(self, msgspec.structs.replace(layout, kv_heads=heads).page_bytes)
        self._leave_by: float | None = None

    def serve(self, opened: Opened) -> None:
        """Take what decodes need to reach rank 0's agent, and wait for the other ranks. Before the threads start."""
        self.sources.use(0, SourceChanged(1, opened.metadata, opened.address))
        for rank, report in self.sources.hub.await_ranks():
            self.inbox.put(FromRank(rank, report))

    @property
    def rooms(self) -> dict[int, PrefillRoom]:
        """The rooms that are not over, by number."""
        return self.steps.rooms

    # -- the loop's frame ------------------------------------------------------------------------------------

    def _sockets(self) -> list[zmq.Socket[bytes]]:
        return [*self.peers.channel.sockets, *self.sources.hub.sockets()]

    def _pulses(self) -> list[PeerPulse]:
        return [peer.pulse for peer in self.peers.known.values()]

    def _receive(self) -> None:
        self.sources.receive()
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
            self.sources.stir()
            return
        peer = self.peers.known.get(routing_id)
        if peer is None:
            self.peers.nack_stranger(routing_id, envelope.src, frame, "unknown peer: say HELLO first")
            return
        try:
            self._frame(peer, frame)
        except Exception as error:
            room = self.steps.rooms.get(frames.room_of(frame) or -1)
            if room is not None:
                self.steps.apply(room, PrefillEvent.FAIL, FailReason.READ_FAILED, f"control thread crashed: {error}")
            raise

    def _obey(self, item: PrefillItem) -> None:
        match item:
            case Leg():
                self._announce(item)
            case FailLeg():
                if (room := self.steps.by_rid.get(item.rid)) is not None:
                    self.steps.apply(room, PrefillEvent.FAIL, item.reason, item.detail)
            case Chunk():
                self.sources.hub.tell_all(item)
            case FromRank():
                self.sources.hear(item)

    def _abandon(self, item: PrefillItem, detail: str) -> None:
        room = self.steps.by_rid.get(getattr(item, "rid", ""))
        if room is not None:
            self.steps.apply(room, PrefillEvent.FAIL, FailReason.READ_FAILED, detail)
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
                        self.steps.apply(room, PrefillEvent.FAIL, FailReason.PEER_STUCK, detail)
        for room in list(self.steps.rooms.values()):
            if now >= room.deadline:
                self._expire(room)
        self._bound()

    def _given_up(self, detail: str) -> None:
        """Wait: decodes dial, and their HELLO on another connection ends the old one."""

    def _leave(self) -> None:
        # A decode that finds COMMITTED behind a broken connection would fail what this side has answered.
        if self._leave_by is None:
            self._leave_by = self.clock.monotonic() + LANDING_WAIT_S
        self.draining = True
        while self._is_landing() and self.clock.monotonic() < self._leave_by:
            self._turn()
        self.peers.leave()
        self.sources.hub.close()

    def _is_landing(self) -> bool:
        """Say whether COMMITTED was said that a decode has not acknowledged; a lost peer leaves no such room."""
        return any(room.state is PrefillState.LANDED for room in self.steps.rooms.values())

    def _expire(self, room: PrefillRoom) -> None:
        missing = "offer from decode" if room.state is PrefillState.ANNOUNCED else "prefill leg"
        waited = self.config.pairing_timeout_s
        detail = f"the {missing} for room {room.number} did not come within {waited:g} s"
        reason = None if room.state is PrefillState.TOMBSTONE else FailReason.PAIRING_TIMEOUT
        self.steps.apply(room, PrefillEvent.EXPIRED, reason, detail)

    def _bound(self) -> None:
        """Forget the oldest rooms that hold nothing, should a peer make too many."""
        unpaired = [
            room for room in self.steps.rooms.values() if room.state in (PrefillState.PARKED, PrefillState.TOMBSTONE)
        ]
        for room in unpaired[: max(len(unpaired) - MOST_UNPAIRED, 0)]:
            room.state = PrefillState.ABSENT
            self.steps.drop(room)

    # -- peers -----------------------------------------------------------------------------------------------

    def _rooms_of(self, peer: DecodePeer) -> list[PrefillRoom]:
        return [room for room in self.steps.rooms.values() if room.peer is peer]

    def _lose(self, peer: DecodePeer, reason: FailReason, detail: str) -> None:
        self.peers.forget(peer)
        if self.canary is not None:
            self.canary.lost(peer)
        for room in self._rooms_of(peer):
            self.steps.apply(room, PrefillEvent.PEER_GONE, reason, detail)

    # -- from the loop -----------------------------------------------------------------------------------------

    def _announce(self, leg: Leg) -> None:
        room = self.steps.rooms.get(leg.room) or self.steps.new_room(leg.room)
        if Action.REFUSE_LEG in prefill_step(room.state, PrefillEvent.LEG).actions:
            reason = room.reason or FailReason.ABORTED
            detail = room.detail or f"room {leg.room} is already in use"
            leg.record.state, leg.record.reason = "failed", reason
            self.events.put(Failed(leg.rid, reason, detail))
            return
        room.leg = leg
        self.steps.by_rid[leg.rid] = room
        difference = leg.difference(room.offer) if room.offer else None
        event = PrefillEvent.LEG_DIFFERS if difference else PrefillEvent.LEG
        self.steps.apply(room, event, FailReason.PROMPT_MISMATCH if difference else None, difference or "")

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
                self._room_event(peer, frame, PREFILL_HEARS[Kind.COMMIT])
            case frames.Abort() | frames.Refused():
                detail = f"{peer.instance}: {frame.detail}"
                event = PREFILL_HEARS[Kind(kind_of(frame))]
                self._room_event(peer, frame, event, reason_of_end(frame), detail)
            case frames.Ack():
                peer.outbox.answer((frame.room, frame.of, frame.index))
                if frame.of in PREFILL_HEARS_ACK_OF and frame.room in self.steps.rooms:
                    detail = f"{peer.instance} has heard {frame.of.upper()} about the room and is through with it"
                    self._room_event(peer, frame, PrefillEvent.ACK, FailReason.PEER_GONE, detail)
            case frames.Nack():
                self._nacked(peer, frame)
            case frames.Canary() if self.canary is not None:
                if (ready := self.canary.asked(peer, frame)) is not None:
                    self.peers.send(peer, ready)
            case frames.CanaryRead() if self.canary is not None:
                self.canary.told(peer, frame)
            case _:
                self.peers.nack(peer, frame, "not a frame for prefill")

    def _nacked(self, peer: DecodePeer, nack: frames.Nack) -> None:
        if nack.room is None or nack.room not in self.steps.rooms:
            return
        peer.outbox.forget_room(nack.room)
        detail = f"{peer.instance} cannot use {nack.of}: {nack.reason}"
        self._room_event(peer, nack, PrefillEvent.NACK, FailReason.PEER_GONE, detail)

    def _offer(self, peer: DecodePeer, offer: frames.Offer) -> None:
        room = self.steps.rooms.get(offer.room)
        leg = room.leg if room else None
        if peer.refused is not None:
            event, reason, detail = PrefillEvent.OFFER_UNWANTED, FailReason.CONTRACT_MISMATCH, peer.refused
        elif self.draining and room is None:
            event, reason, detail = PrefillEvent.OFFER_UNWANTED, FailReason.DRAINING, "prefill is draining"
        elif leg is not None and (difference := leg.difference(offer)) is not None:
            event, reason, detail = PrefillEvent.OFFER_DIFFERS, FailReason.PROMPT_MISMATCH, difference
        else:
            self._room_event(peer, offer, PREFILL_HEARS[Kind.OFFER])
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
        room = self.steps.rooms.get(number) or self.steps.new_room(number)
        if room.peer is None:
            room.peer = peer
        if room.peer is not peer:
            self.peers.nack(peer, frame, "the room is bound to another incarnation")
            return
        if isinstance(frame, frames.Offer) and room.offer is None:
            room.offer = frame
        self.steps.apply(room, event, reason, detail, frame)
