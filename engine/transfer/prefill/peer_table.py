"""The decodes connected to a prefill: who they are, what they were not told yet, when they were heard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zmq

from engine import PROTOCOL_VERSION
from engine.transfer.control.channel import PrefillChannel, Sent
from engine.transfer.prefill.rooms import DecodePeer
from engine.transfer.protocol import frames
from engine.transfer.protocol.clocks import HEARTBEAT_S, PeerPulse
from engine.transfer.protocol.contract import mismatch, ranks_mismatch
from engine.transfer.protocol.frames import BadFrame, Envelope, Frame, Hello, Kind, kind_of, room_of

if TYPE_CHECKING:
    from engine.transfer.prefill.control import PrefillControl

MOST_PEERS = 1024


class PeerTable:
    """Peers by routing id; part of prefill's control thread."""

    def __init__(self, control: PrefillControl, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.known: dict[bytes, DecodePeer] = {}
        self.channel = PrefillChannel(context, control.config.host, control.key)
        self._control = control
        self._broken: list[DecodePeer] = []

    def hear(self, routing_id: bytes, data: bytes) -> Envelope | None:
        """Return the frame in `data` when it is a frame, for this incarnation, from who it says."""
        envelope = frames.decode(data)
        counters = self._control.counters
        if isinstance(envelope, BadFrame):
            counters.bad_frames += 1
            if envelope.unknown_kind is not None:
                reason = f"unknown kind; this side speaks protocol {PROTOCOL_VERSION}"
                self._send_raw(routing_id, "", frames.Nack(None, envelope.unknown_kind, reason))
            return None
        counters.frames[kind_of(envelope.body), "in"] += 1
        if envelope.dst != self._control.config.incarnation:
            self.nack_stranger(routing_id, envelope.src, envelope.body, "the frame names another incarnation")
            return None
        peer = self.known.get(routing_id)
        if peer is not None:
            if peer.incarnation != envelope.src:
                self.nack(peer, envelope.body, "the sender is not who said HELLO")
                return None
            peer.pulse.hear(self._control.clock.monotonic())
        return envelope

    def replaced_by(self, routing_id: bytes, incarnation: str) -> list[DecodePeer]:
        """Return the peers that a HELLO of this incarnation on another connection makes obsolete."""
        return [
            peer for peer in self.known.values() if peer.incarnation == incarnation and peer.routing_id != routing_id
        ]

    def greet(self, routing_id: bytes, incarnation: str, hello: Hello) -> None:
        """Answer a HELLO with ours, whether the contracts fit or not: both sides come to the same verdict."""
        peer = self.known.get(routing_id)
        if peer is None:
            if len(self.known) >= MOST_PEERS:
                self.nack_stranger(routing_id, incarnation, hello, f"more than {MOST_PEERS} peers")
                return
            now = self._control.clock.monotonic()
            peer = self.known[routing_id] = DecodePeer(routing_id, incarnation, hello, PeerPulse(now))
            peer.refused = mismatch(self._control.contract, hello.contract) or ranks_mismatch(
                self._control.ranks, hello.ranks
            )
            self._control.refused.pop(peer.instance, None)
            if peer.refused is not None:
                self._control.refused[peer.instance] = peer.refused
        if self._control.sources.is_readable:
            self.send(peer, self._control.hello())

    def forget(self, peer: DecodePeer) -> None:
        """Drop a peer and all that it was not told."""
        self.known.pop(peer.routing_id, None)
        if not any(other.instance == peer.instance for other in self.known.values()):
            self._control.refused.pop(peer.instance, None)

    def lost_by_sending(self) -> list[DecodePeer]:
        """Return the known peers whose connection a send found broken since the last call."""
        broken, self._broken = self._broken, []
        return [peer for peer in broken if self.known.get(peer.routing_id) is peer]

    def beat(self, peer: DecodePeer, now: float) -> None:
        """Send what is due: heartbeat and repeats."""
        if now >= peer.next_beat:
            peer.next_beat = now + HEARTBEAT_S
            self.send(peer, self._control.heartbeat())
        for frame in peer.outbox.due(now):
            self.send(peer, frame)

    def send(self, peer: DecodePeer, frame: Frame) -> None:
        """Send once, if it goes; a broken connection is noted for `lost_by_sending`."""
        if self._send_raw(peer.routing_id, peer.incarnation, frame) is Sent.GONE:
            self._broken.append(peer)

    def push(self, peer: DecodePeer, frame: Frame) -> None:
        """Send and repeat until answered; an end replaces whatever was still to say about its room."""
        if isinstance(frame, frames.End):
            peer.outbox.forget_room(frame.room)
        peer.outbox.add(frame, self._control.clock.monotonic())
        self.send(peer, frame)

    def nack(self, peer: DecodePeer, frame: Frame, reason: str) -> None:
        """Say that a frame cannot be used."""
        self.nack_stranger(peer.routing_id, peer.incarnation, frame, reason)

    def nack_stranger(self, routing_id: bytes, incarnation: str, frame: Frame, reason: str) -> None:
        """As `nack`, to somebody who is no peer; answers are not answered."""
        if kind_of(frame) not in (Kind.ACK, Kind.NACK):
            self._control.counters.nacks[reason] += 1
            self._send_raw(routing_id, incarnation, frames.Nack(room_of(frame), kind_of(frame), reason))

    def leave(self) -> None:
        """Say GOODBYE to every peer and close the socket."""
        for peer in self.known.values():
            self.send(peer, frames.Goodbye("prefill stops"))
        self.known.clear()
        self.channel.close()

    def _send_raw(self, routing_id: bytes, incarnation: str, frame: Frame) -> Sent:
        return self.channel.send(routing_id, self._control.envelope(incarnation, frame))
