"""Keeps a link to every configured prefill: look up, connect, greet, heartbeat, repeat; anew when broken."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from engine import PROTOCOL_VERSION
from engine.transfer.control.channel import GOODBYE_LINGER_MS, Connection, DecodeChannel, Sent
from engine.transfer.control.registry import LOOKUP_LIMIT_S, Resolved
from engine.transfer.data.read_orders import ClosePeer, OpenPeer, Order
from engine.transfer.data.runs import Place
from engine.transfer.decode.links import NO_SOURCE, Lane, Link, LinkPhase
from engine.transfer.interface import FailReason
from engine.transfer.protocol import frames
from engine.transfer.protocol.clocks import HEARTBEAT_S, PeerPulse
from engine.transfer.protocol.contract import layout_of, mismatch, ranks_mismatch
from engine.transfer.protocol.frames import BadFrame, Frame, Kind, kind_of, room_of
from engine.transfer.protocol.head_runs import head_runs

if TYPE_CHECKING:
    from engine.transfer.decode.control import DecodeControl

log = logging.getLogger(__name__)

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class LinkUp:
    """The prefill's HELLO came; rooms may be offered (or refused, see `Link.refused`)."""


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The link is of no more use."""

    reason: FailReason
    detail: str


class LinkKeeper:
    """The links of one decode; part of its control thread."""

    def __init__(
        self,
        control: DecodeControl,
        context: zmq.Context[zmq.Socket[bytes]],
        order: Callable[[int, Order], None],
        ask: Callable[[str, int], None],
    ) -> None:
        self.current: dict[str, Link] = {}
        """Bootstrap address -> its link; a lost one is replaced."""
        self._control = control
        self._config = control.config
        self._clock = control.clock
        self._context = context
        self._order = order
        self._ask = ask
        self._made = 0

    def sockets(self) -> list[zmq.Socket[bytes]]:
        """Return the sockets and monitors to wait for."""
        found: list[zmq.Socket[bytes]] = []
        for link in self.connected():
            if link.channel is not None and link.channel.state is not Connection.BROKEN:
                found += [link.channel.socket, link.channel.monitor]
        return found

    def connected(self) -> list[Link]:
        """Return the links that have a channel."""
        return [link for link in self.current.values() if link.channel is not None]

    def of_lane(self, key: str) -> Link | None:
        """Return the current link that has that lane."""
        return next((link for link in self.current.values() if link.lane(key) is not None), None)

    def of(self, bootstrap: str) -> Link | None:
        """Return the link to a configured prefill, trying at once when it is down; None for a stranger."""
        if bootstrap not in self._config.peers:
            return None
        link = self.current.get(bootstrap)
        if link is None or link.phase is LinkPhase.DOWN:
            link = self._dial(bootstrap)
        return link

    def _dial(self, bootstrap: str) -> Link:
        self._made += 1
        link = Link(bootstrap, self._made, PeerPulse(heard_at=self._clock.monotonic()))
        self.current[bootstrap] = link
        self._ask(bootstrap, link.number)
        return link

    def resolved(self, link: Link, answer: Resolved) -> LinkLost | None:
        """Connect to what the registry named, if this link still waits for that answer."""
        if link.phase is not LinkPhase.LOOKING_UP or answer.number != link.number:
            return None
        if answer.record is None:
            return LinkLost(FailReason.UNREACHABLE, answer.error)
        link.record = answer.record
        link.phase = LinkPhase.CONNECTING
        link.pulse.hear(self._clock.monotonic())
        routing_id = f"{self._config.incarnation}/{link.number}".encode()
        try:
            link.channel = DecodeChannel(self._context, answer.record.control_endpoint, routing_id, self._control.key)
        except zmq.ZMQError as error:
            where = answer.record.control_endpoint
            return LinkLost(FailReason.UNREACHABLE, f"{link.instance}: cannot connect to {where}: {error}")
        return None

    def watch(self, link: Link) -> LinkLost | None:
        """Look at the connection; once it is up, say HELLO until it is answered."""
        if link.channel is None:
            return None
        state = link.channel.watch()
        if state is Connection.BROKEN:
            if link.phase is LinkPhase.UP:
                return LinkLost(FailReason.PEER_GONE, f"the connection to {link.instance} broke")
            endpoint = link.record.control_endpoint if link.record else ""
            refusal = "our control key (--control-key-file)" if link.channel.is_key_refused else "connections"
            detail = f"the control channel of {link.instance} at {endpoint} refuses {refusal}"
            return LinkLost(FailReason.UNREACHABLE, detail)
        now = self._clock.monotonic()
        if state is Connection.UP and link.phase is LinkPhase.CONNECTING and now >= link.next_beat:
            link.next_beat = now + HEARTBEAT_S
            self.send(link, self._control.hello())
        return None

    def hear(self, link: Link, data: bytes) -> Frame | None:
        """Return the frame in `data` when it is meant for this link."""
        envelope = frames.decode(data)
        counters = self._control.counters
        if isinstance(envelope, BadFrame):
            counters.bad_frames += 1
            if envelope.unknown_kind is not None:
                reason = f"unknown kind; this side speaks protocol {PROTOCOL_VERSION}"
                self._send_nack(link, frames.Nack(None, envelope.unknown_kind, reason))
            return None
        frame = envelope.body
        counters.frames[kind_of(frame), "in"] += 1
        if envelope.src != link.incarnation or envelope.dst != self._config.incarnation:
            self.nack(link, frame, "the frame names another incarnation")
            return None
        link.pulse.hear(self._clock.monotonic())
        return frame

    def greeted(self, link: Link, hello: frames.Hello) -> LinkUp | LinkLost | None:
        """Take the prefill's HELLO: compare contracts, hand its pools to the read threads."""
        if link.phase is LinkPhase.UP and hello.source != link.source:
            if [rank.kv_heads for rank in hello.ranks] != [rank.kv_heads for rank in link.ranks]:
                return LinkLost(FailReason.PEER_GONE, f"{link.instance} deals its KV heads in another way than before")
            self._use_sources(link, hello)
        if link.phase is not LinkPhase.CONNECTING:
            return None
        ours, theirs = self._control.ranks, hello.ranks
        link.refused = mismatch(self._control.contract, hello.contract) or ranks_mismatch(theirs, ours)
        link.phase = LinkPhase.UP
        link.next_beat = 0.0
        self._control.refused.pop(link.instance, None)
        if link.refused is not None:
            self._control.refused[link.instance] = link.refused
        else:
            runs = head_runs([rank.kv_heads for rank in theirs], [rank.kv_heads for rank in ours])
            link.lanes = tuple(Lane(f"{link.key}/{index}", run) for index, run in enumerate(runs))
            link.error = "its NIXL agents are not made yet"
        self._use_sources(link, hello)
        return LinkUp()

    def _use_sources(self, link: Link, hello: frames.Hello) -> None:
        """Read from the data planes that a HELLO names; READs that run on an older one begin again."""
        link.ranks, link.source = hello.ranks, hello.source
        config = self._config
        for lane in link.lanes:
            pool = hello.ranks[lane.heads.source_rank]
            if link.opened.get(lane.key) == pool.source:
                continue
            link.opened[lane.key] = pool.source
            ours = f"{config.instance}/{config.incarnation}/{lane.heads.reader_rank}"
            theirs = f"{link.incarnation}.{lane.heads.source_rank}.{lane.heads.source_head}.{pool.source}"
            place = Place(pool.geometry.address, layout_of(pool.geometry))
            order = OpenPeer(lane.key, f"{ours}/{theirs}", pool.nixl_metadata, place, lane.heads)
            self._order(lane.heads.reader_rank, order)

    def opened(self, link: Link, lane: str) -> None:
        """Take it that a lane has an agent."""
        link.agents[lane] = True
        if link.is_working:
            link.error = ""

    def lack_source(self, link: Link, lane: str, detail: str) -> None:
        """Have the next heartbeat ask anew where the pages are: at once would be without end where NIXL fails."""
        if link.agents.get(lane, True):
            log.warning("no NIXL agent to read from %s over lane %s; trying on: %s", link.instance, lane, detail)
        link.agents[lane] = False
        link.opened.pop(lane, None)
        link.source = NO_SOURCE
        if link.phase is LinkPhase.UP:
            link.error = detail

    def beaten(self, link: Link, beat: frames.Heartbeat) -> None:
        """Take a heartbeat; ask again where the pages are when a HELLO must have been lost."""
        link.pulse.beat(self._clock.monotonic(), beat.loop_tick, beat.longest_step_s)
        if link.phase is LinkPhase.UP and beat.source != link.source:
            self.send(link, self._control.hello())

    def tick(self, link: Link, now: float) -> LinkLost | None:
        """Heartbeat, repeats and the silence clock; for a link that is down the next attempt."""
        if link.phase is LinkPhase.DOWN:
            if now >= link.retry_at:
                self._dial(link.bootstrap)
            return None
        if link.phase is LinkPhase.LOOKING_UP:
            if not link.pulse.is_silent(now, LOOKUP_LIMIT_S):
                return None
            return LinkLost(FailReason.UNREACHABLE, f"its lookup has not ended in {LOOKUP_LIMIT_S:g} s")
        if link.pulse.is_silent(now, self._config.silence_timeout_s):
            waited = self._config.silence_timeout_s
            up = link.phase is LinkPhase.UP
            reason = FailReason.PEER_SILENT if up else FailReason.UNREACHABLE
            return LinkLost(reason, f"no frame from {link.instance} for {waited:g} s")
        if link.phase is LinkPhase.UP:
            if now >= link.next_beat:
                link.next_beat = now + HEARTBEAT_S
                self.send(link, self._control.heartbeat())
            for frame in link.outbox.due(now):
                self.send(link, frame)
        return None

    def send(self, link: Link, frame: Frame) -> Sent:
        """Send once, if it goes."""
        if link.channel is None:
            return Sent.GONE
        return link.channel.send(self._control.envelope(link.incarnation, frame))

    def push(self, link: Link, frame: Frame) -> None:
        """Send and repeat until answered; before the link is up, keep it for then."""
        if link.phase is LinkPhase.DOWN:
            return
        if isinstance(frame, frames.End):
            link.outbox.forget_room(frame.room)
        link.outbox.add(frame, self._clock.monotonic())
        if link.phase is LinkPhase.UP:
            self.send(link, frame)

    def nack(self, link: Link, frame: Frame, reason: str) -> None:
        """Say that a frame cannot be used; answers are not answered."""
        if kind_of(frame) not in (Kind.ACK, Kind.NACK):
            self._send_nack(link, frames.Nack(room_of(frame), kind_of(frame), reason))

    def _send_nack(self, link: Link, nack: frames.Nack) -> None:
        self._control.counters.nacks[nack.reason] += 1
        self.send(link, nack)

    def lose(self, link: Link, lost: LinkLost) -> None:
        """Close a link and plan the next attempt."""
        link.phase = LinkPhase.DOWN
        link.error = lost.detail
        link.retry_at = self._clock.monotonic() + RETRY_S
        link.outbox = type(link.outbox)()
        self._control.refused.pop(link.instance, None)
        for lane in link.lanes:
            self._order(lane.heads.reader_rank, ClosePeer(lane.key))
        channel, link.channel = link.channel, None
        if channel is not None:
            channel.close()

    def dial_all(self) -> None:
        """Reach for every configured prefill, so that health is honest and the first request finds a link."""
        for bootstrap in self._config.peers:
            if bootstrap not in self.current:
                self._dial(bootstrap)

    def leave(self) -> None:
        """Say GOODBYE on every link and close it."""
        for link in self.connected():
            self.send(link, frames.Goodbye("decode stops"))
            assert link.channel is not None
            link.channel.close(GOODBYE_LINGER_MS)
            link.channel = None
