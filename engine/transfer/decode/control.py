"""Decode's control thread: runs the `DECODE` table for all rooms and keeps the links to the prefills."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event as ThreadEvent

import zmq

from engine.clock import Clock
from engine.config import EngineConfig
from engine.kvcache.layout import KVLayout
from engine.observe.journal import Journal
from engine.transfer.control.loop import ControlLoop
from engine.transfer.control.registry import Resolved
from engine.transfer.data.rank_link import InstanceRanks, RankHub
from engine.transfer.data.read_orders import (
    Order,
    PagesSummed,
    PeerOpened,
    PeerUnusable,
    ReadFinished,
    Report,
    RoomFenced,
    SumPages,
)
from engine.transfer.decode.canary import CanaryReader
from engine.transfer.decode.frames import DecodeFrames
from engine.transfer.decode.link_keeper import LinkKeeper, LinkLost, LinkUp
from engine.transfer.decode.links import Link, LinkPhase
from engine.transfer.decode.rooms import DecodeRoom, FailRoom, GrantPages, OpenRoom, RefuseRoom, SumPrompt
from engine.transfer.decode.steps import FENCE_LIMIT_S, DecodeSteps
from engine.transfer.interface import Failed, FailReason, Fenced, Summed
from engine.transfer.protocol import frames
from engine.transfer.protocol.clocks import PeerPulse
from engine.transfer.protocol.frames import Frame
from engine.transfer.protocol.rooms import DecodeEvent, DecodeState

log = logging.getLogger(__name__)

LoopItem = OpenRoom | GrantPages | FailRoom | RefuseRoom | SumPrompt
ThreadItem = Resolved | Report
DecodeItem = LoopItem | ThreadItem


class DecodeControl(ControlLoop[DecodeItem]):
    """See the module. `own` takes the orders for rank 0's read worker, `ask` goes to the resolver."""

    def __init__(
        self,
        config: EngineConfig,
        contract: dict[str, str],
        layout: KVLayout,
        ranks: InstanceRanks,
        clock: Clock,
        journal: Journal,
        stopping: ThreadEvent,
        own: Callable[[Order], None],
        ask: Callable[[str, int], None],
        end_instance: Callable[[str], None],
    ) -> None:
        super().__init__(config, contract, layout, ranks, clock, journal, stopping)
        self._end_instance = end_instance
        self.hub: RankHub[Order, Report] = RankHub(self._context, ranks, own, Report)
        self.links = LinkKeeper(self, self._context, self.hub.tell, ask)
        self.steps = DecodeSteps(self, self.hub.tell)
        self.canary: CanaryReader | None = None
        self._frames = DecodeFrames(self)

    @property
    def rooms(self) -> dict[str, DecodeRoom]:
        """The rooms that are not over, by rid."""
        return self.steps.rooms

    # -- the loop's frame ------------------------------------------------------------------------------------

    def _sockets(self) -> list[zmq.Socket[bytes]]:
        return self.links.sockets() + self.hub.sockets()

    def _pulses(self) -> list[PeerPulse]:
        return [link.pulse for link in self.links.current.values()]

    def _receive(self) -> None:
        for _, report in self.hub.receive():
            self.inbox.put(report)
        for link in self.links.connected():
            self._hear(link)

    def _hear(self, link: Link) -> None:
        """Read what a link brought, then look whether it still stands: a COMMITTED may be the last that came."""
        while link.channel and (data := link.channel.receive()) is not None:
            frame = self.links.hear(link, data)
            if frame is not None:
                self._guarded_frame(link, frame)
        self.settle_link(self.links.watch(link), link)

    def _guarded_frame(self, link: Link, frame: Frame) -> None:
        try:
            self._frames.handle(link, frame)
        except Exception as error:
            room = self.steps.numbers.get(frames.room_of(frame) or -1)
            if room is not None:
                self.steps.apply(room, DecodeEvent.FAIL, FailReason.READ_FAILED, f"control thread crashed: {error}")
            raise

    def _obey(self, item: DecodeItem) -> None:
        match item:
            case OpenRoom():
                self._open(item)
            case GrantPages():
                self._grant(item)
            case FailRoom():
                if (room := self.steps.rooms.get(item.rid)) is not None:
                    self.steps.apply(room, DecodeEvent.FAIL, item.reason, item.detail)
            case RefuseRoom():
                if (link := self.links.of(item.bootstrap)) is not None:
                    self.links.push(link, frames.Refused(item.room, FailReason.PEER_REFUSED, item.detail))
            case SumPrompt():
                for rank in range(self.hub.size):
                    self.hub.tell(rank, SumPages(item.rid, rank, item.pages))
            case _:
                self._obey_thread(item)

    def _obey_thread(self, item: ThreadItem) -> None:
        match item:
            case Resolved():
                if (link := self.links.current.get(item.bootstrap)) is not None:
                    self.settle_link(self.links.resolved(link, item), link)
            case PeerOpened():
                if (link := self.links.of_lane(item.lane)) is not None:
                    self.links.opened(link, item.lane)
            case PeerUnusable():
                if (link := self.links.of_lane(item.lane)) is not None:
                    self.links.lack_source(link, item.lane, item.detail)
            case ReadFinished():
                self._read_finished(item)
            case RoomFenced():
                if (room := self.steps.rooms.get(item.rid)) is not None:
                    self.steps.fenced(room, item.lane)
            case PagesSummed():
                self.events.put(Summed(item.rid, item.rank, item.sums))

    def _abandon(self, item: DecodeItem, detail: str) -> None:
        room = self.steps.rooms.get(getattr(item, "rid", ""))
        if room is not None:
            self.steps.apply(room, DecodeEvent.FAIL, FailReason.READ_FAILED, detail)
        elif isinstance(item, OpenRoom):
            self.events.put(Failed(item.rid, FailReason.READ_FAILED, detail))

    def _tick(self, now: float) -> None:
        for link in list(self.links.current.values()):
            self.settle_link(self.links.tick(link, now), link)
            limit = self.config.stuck_timeout_s
            if link.phase is LinkPhase.UP and link.pulse.is_stuck(now, limit):
                detail = f"the loop of {link.instance} has not moved for {now - link.pulse.moved_at:.0f} s"
                for room in self._rooms_of(link):
                    self.steps.apply(room, DecodeEvent.FAIL, FailReason.PEER_STUCK, detail)
        for room in list(self.steps.rooms.values()):
            if now >= room.deadline:
                self._expired(room)
        if self.canary is not None:
            self.canary.tick(list(self.links.current.values()), now)

    def _expired(self, room: DecodeRoom) -> None:
        if room.state is DecodeState.FENCING:
            room.deadline = float("inf")
            self._end_instance(f"the fence of {room.rid} hangs in NIXL for over {FENCE_LIMIT_S:.0f} s")
            return
        waited = self.config.pairing_timeout_s
        detail = f"the prefill leg of room {room.number} did not come within {waited:g} s"
        if room.link.phase is not LinkPhase.UP:
            detail = f"no link to {room.link.instance} within {waited:g} s: {room.link.phase}"
        self.steps.apply(room, DecodeEvent.EXPIRED, FailReason.PAIRING_TIMEOUT, detail)

    def _given_up(self, detail: str) -> None:
        # An OFFER on the old link would be refused, and its prefill leg would wait for its pairing clock.
        for link in self.links.connected():
            if link.phase is LinkPhase.UP:
                self.settle_link(LinkLost(FailReason.PEER_GONE, f"{link.instance} gave us up: {detail}"), link)
                self.links.of(link.bootstrap)

    def _leave(self) -> None:
        self.links.leave()
        self.hub.close()

    # -- links -----------------------------------------------------------------------------------------------

    def _rooms_of(self, link: Link) -> list[DecodeRoom]:
        return [room for room in self.steps.rooms.values() if room.link is link]

    def settle_link(self, change: LinkUp | LinkLost | None, link: Link) -> None:
        """Tell the rooms of a link what became of it."""
        if isinstance(change, LinkUp):
            for room in self._rooms_of(link):
                self._use_link(room)
        elif isinstance(change, LinkLost):
            self.links.lose(link, change)
            for room in self._rooms_of(link):
                self.steps.apply(room, DecodeEvent.PEER_GONE, change.reason, change.detail)

    def _use_link(self, room: DecodeRoom) -> None:
        link = room.link
        room.record.peer, room.record.peer_incarnation = link.instance, link.incarnation
        if link.refused is not None:
            self.steps.apply(room, DecodeEvent.FAIL, FailReason.CONTRACT_MISMATCH, link.refused)
        else:
            self.steps.apply(room, DecodeEvent.LINK_UP)

    # -- from the loop and the read thread -------------------------------------------------------------------

    def _open(self, asked: OpenRoom) -> None:
        link = self.links.of(asked.bootstrap)
        refusal = self._refusal(asked, link)
        if refusal is not None or link is None:
            reason, detail = refusal or (FailReason.UNREACHABLE, asked.bootstrap)
            self.events.put(Failed(asked.rid, reason, detail))
            return
        size = self.page_size
        room = DecodeRoom(asked, link, -(-asked.prompt_tokens // size), asked.prefix_tokens // size)
        room.deadline = self.clock.monotonic() + self.config.pairing_timeout_s
        self.steps.rooms[asked.rid] = self.steps.numbers[asked.room] = room
        self.steps.apply(room, DecodeEvent.OPEN)
        if link.phase is LinkPhase.UP:
            self._use_link(room)

    def _refusal(self, asked: OpenRoom, link: Link | None) -> tuple[FailReason, str] | None:
        if link is None:
            known = ", ".join(self.config.peers) or "none"
            return FailReason.UNREACHABLE, f"{asked.bootstrap} is no configured prefill (known: {known})"
        if asked.room in self.steps.numbers:
            return FailReason.ABORTED, f"room {asked.room} is already in use"
        if self.draining:
            self.links.push(link, frames.Refused(asked.room, FailReason.DRAINING, "decode is draining"))
            return FailReason.DRAINING, "this decode takes no new rooms"
        return None

    def _grant(self, granted: GrantPages) -> None:
        room = self.steps.rooms.get(granted.rid)
        if room is None:
            # decode_step(ABSENT, GRANT) is TELL_FENCED: the room ended before the grant came.
            self.events.put(Fenced(granted.rid))
            return
        room.pages, room.is_granted = granted.pages, True
        if granted.prefix_tokens is not None:
            room.prefix_pages = granted.prefix_tokens // self.page_size
        if len(granted.pages) != room.total_pages:
            raise ValueError(f"granted {len(granted.pages)} pages for a prompt of {room.total_pages}")
        self.steps.apply(room, DecodeEvent.GRANT)

    def _read_finished(self, report: ReadFinished) -> None:
        if self.canary is not None and self.canary.finished(report):
            return
        room = self.steps.rooms.get(report.rid)
        if room is None or room.state is not DecodeState.READING:
            return
        room.reads -= 1
        if report.reason is None:
            room.record.kv_bytes += report.size_bytes
            room.lane_seconds[report.lane] = room.lane_seconds.get(report.lane, 0.0) + report.seconds
            room.record.transfer_s = max(room.lane_seconds.values())
            self.steps.finish_reading(room)
            return
        room.has_failed_read = report.reason is not FailReason.CHECKSUM_MISMATCH
        # A dead source fails READs and breaks the connection at once; say which it was.
        self._hear(room.link)
        if room.state is DecodeState.READING:
            self.steps.apply(room, DecodeEvent.READ_FAILED, report.reason, report.detail)
