"""Decode's control thread: runs the `DECODE` table for all rooms and keeps the links to the prefills."""

from __future__ import annotations

import logging
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
from engine.transfer.decode_links import Link, LinkPhase
from engine.transfer.decode_rooms import DecodeRoom, FailRoom, GrantPages, OpenRoom, RefuseRoom
from engine.transfer.frames import Frame, Geometry, Kind
from engine.transfer.interface import Failed, FailReason, Fenced, Landed, WantPages
from engine.transfer.link_keeper import LinkKeeper, LinkLost, LinkUp
from engine.transfer.outbox import key_of
from engine.transfer.read_worker import (
    FenceRoom,
    Order,
    PeerUnusable,
    PostRead,
    ReadFinished,
    RoomFenced,
)
from engine.transfer.registry import Resolved
from engine.transfer.rooms import Action, DecodeEvent, DecodeState, decode_step, shown

log = logging.getLogger(__name__)

FENCE_LIMIT_S = 10.0
"""A fence that takes longer hangs inside NIXL: its pages can never be given back, so the instance ends."""

LoopItem = OpenRoom | GrantPages | FailRoom | RefuseRoom
ThreadItem = Resolved | PeerUnusable | ReadFinished | RoomFenced
DecodeItem = LoopItem | ThreadItem


class DecodeControl(ControlLoop[DecodeItem]):
    """See the module. `orders` goes to the read thread, `ask` to the resolver."""

    def __init__(
        self,
        config: EngineConfig,
        contract: dict[str, str],
        geometry: Geometry,
        clock: Clock,
        journal: Journal,
        stopping: ThreadEvent,
        order: Callable[[Order], None],
        ask: Callable[[str], None],
        end_instance: Callable[[str], None],
    ) -> None:
        super().__init__(config, contract, geometry, clock, journal, stopping)
        self.rooms: dict[str, DecodeRoom] = {}
        self._numbers: dict[int, DecodeRoom] = {}
        self._order = order
        self._end_instance = end_instance
        self.links = LinkKeeper(self, self._context, order, ask)
        self._actions: dict[Action, Callable[[DecodeRoom, Frame | None], None]] = {
            Action.TELL_FAILED: self._tell_failed,
            Action.TELL_LANDED: self._tell_landed,
            Action.TELL_FENCED: self._tell_fenced,
            Action.WANT_PAGES: self._want_pages,
            Action.ACK: self._ack,
            Action.NACK: self._nack,
            Action.SEND_OFFER: self._send_offer,
            Action.SEND_COMMIT: self._send_commit,
            Action.PUSH_END: self._push_end,
            Action.POST_READS: self._post_reads,
            Action.FENCE: self._fence,
        }

    # -- the loop's frame ------------------------------------------------------------------------------------

    def _sockets(self) -> list[zmq.Socket[bytes]]:
        return self.links.sockets()

    def _pulses(self) -> list[PeerPulse]:
        return [link.pulse for link in self.links.current.values()]

    def _receive(self) -> None:
        for link in self.links.connected():
            self._settle_link(self.links.watch(link), link)
            while link.channel and (data := link.channel.receive()) is not None:
                frame = self.links.hear(link, data)
                if frame is not None:
                    self._guarded_frame(link, frame)

    def _guarded_frame(self, link: Link, frame: Frame) -> None:
        try:
            self._frame(link, frame)
        except Exception as error:
            room = self._numbers.get(frames.room_of(frame) or -1)
            if room is not None:
                self.apply(room, DecodeEvent.FAIL, FailReason.READ_FAILED, f"control thread crashed: {error}")
            raise

    def _obey(self, item: DecodeItem) -> None:
        match item:
            case OpenRoom():
                self._open(item)
            case GrantPages():
                self._grant(item)
            case FailRoom():
                if (room := self.rooms.get(item.rid)) is not None:
                    self.apply(room, DecodeEvent.FAIL, item.reason, item.detail)
            case RefuseRoom():
                if (link := self.links.of(item.bootstrap)) is not None:
                    self.links.push(link, frames.Refused(item.room, FailReason.PEER_REFUSED, item.detail))
            case _:
                self._obey_thread(item)

    def _obey_thread(self, item: ThreadItem) -> None:
        match item:
            case Resolved():
                if (link := self.links.current.get(item.bootstrap)) is not None:
                    self._settle_link(self.links.resolved(link, item), link)
            case PeerUnusable():
                if (link := self.links.by_key(item.link)) is not None:
                    self._settle_link(LinkLost(FailReason.READ_FAILED, item.detail), link)
            case ReadFinished():
                self._read_finished(item)
            case RoomFenced():
                if (room := self.rooms.get(item.rid)) is not None:
                    self.apply(room, DecodeEvent.FENCED)

    def _abandon(self, item: DecodeItem, detail: str) -> None:
        room = self.rooms.get(getattr(item, "rid", ""))
        if room is not None:
            self.apply(room, DecodeEvent.FAIL, FailReason.READ_FAILED, detail)
        elif isinstance(item, OpenRoom):
            self.events.put(Failed(item.rid, FailReason.READ_FAILED, detail))

    def _tick(self, now: float) -> None:
        for link in list(self.links.current.values()):
            self._settle_link(self.links.tick(link, now), link)
            limit = self.config.stuck_timeout_s
            if link.phase is LinkPhase.UP and link.pulse.is_stuck(now, limit):
                detail = f"the loop of {link.instance} has not moved for {now - link.pulse.moved_at:.0f} s"
                for room in self._rooms_of(link):
                    self.apply(room, DecodeEvent.FAIL, FailReason.PEER_STUCK, detail)
        for room in list(self.rooms.values()):
            if now >= room.deadline:
                self._expired(room)

    def _expired(self, room: DecodeRoom) -> None:
        if room.state is DecodeState.FENCING:
            room.deadline = float("inf")
            self._end_instance(f"the fence of {room.rid} hangs in NIXL for over {FENCE_LIMIT_S:.0f} s")
            return
        waited = self.config.pairing_timeout_s
        detail = f"the prefill leg of room {room.number} did not come within {waited:g} s"
        self.apply(room, DecodeEvent.EXPIRED, FailReason.PAIRING_TIMEOUT, detail)

    def _leave(self) -> None:
        self.links.leave()

    # -- links -----------------------------------------------------------------------------------------------

    def _rooms_of(self, link: Link) -> list[DecodeRoom]:
        return [room for room in self.rooms.values() if room.link is link]

    def _settle_link(self, change: LinkUp | LinkLost | None, link: Link) -> None:
        """Tell the rooms of a link what became of it."""
        if isinstance(change, LinkUp):
            for room in self._rooms_of(link):
                self._use_link(room)
        elif isinstance(change, LinkLost):
            self.links.lose(link, change)
            for room in self._rooms_of(link):
                self.apply(room, DecodeEvent.PEER_GONE, change.reason, change.detail)

    def _use_link(self, room: DecodeRoom) -> None:
        link = room.link
        room.record.peer, room.record.peer_incarnation = link.instance, link.incarnation
        if link.refused is not None:
            self.apply(room, DecodeEvent.FAIL, FailReason.CONTRACT_MISMATCH, link.refused)
        else:
            self.apply(room, DecodeEvent.LINK_UP)

    # -- from the loop and the read thread -------------------------------------------------------------------

    def _open(self, asked: OpenRoom) -> None:
        link = self.links.of(asked.bootstrap)
        refusal = self._refusal(asked, link)
        if refusal is not None or link is None:
            reason, detail = refusal or (FailReason.UNREACHABLE, asked.bootstrap)
            self.events.put(Failed(asked.rid, reason, detail))
            return
        size = self.geometry.page_size
        room = DecodeRoom(asked, link, -(-asked.prompt_tokens // size), asked.prefix_tokens // size)
        room.deadline = self.clock.monotonic() + self.config.pairing_timeout_s
        self.rooms[asked.rid] = self._numbers[asked.room] = room
        self.apply(room, DecodeEvent.OPEN)
        if link.phase is LinkPhase.UP:
            self._use_link(room)

    def _refusal(self, asked: OpenRoom, link: Link | None) -> tuple[FailReason, str] | None:
        if link is None:
            known = ", ".join(self.config.peers) or "none"
            return FailReason.UNREACHABLE, f"{asked.bootstrap} is no configured prefill (known: {known})"
        if asked.room in self._numbers:
            return FailReason.ABORTED, f"room {asked.room} is already in use"
        if self.draining:
            self.links.push(link, frames.Refused(asked.room, FailReason.DRAINING, "decode is draining"))
            return FailReason.DRAINING, "this decode takes no new rooms"
        return None

    def _grant(self, granted: GrantPages) -> None:
        room = self.rooms.get(granted.rid)
        if room is None:
            # decode_step(ABSENT, GRANT) is TELL_FENCED: the room ended before the grant came.
            self.events.put(Fenced(granted.rid))
            return
        room.pages, room.is_granted = granted.pages, True
        if len(granted.pages) != room.total_pages:
            raise ValueError(f"granted {len(granted.pages)} pages for a prompt of {room.total_pages}")
        self.apply(room, DecodeEvent.GRANT)

    def _read_finished(self, report: ReadFinished) -> None:
        room = self.rooms.get(report.rid)
        if room is None or room.state is not DecodeState.READING:
            return
        room.reads -= 1
        if report.reason is None:
            room.record.kv_bytes += report.size_bytes
            room.record.transfer_s += report.seconds
            self._finish_reading(room)
            return
        # A dead source fails READs and breaks the connection at once; say which it was.
        self._settle_link(self.links.watch(room.link), room.link)
        if room.state is DecodeState.READING:
            self.apply(room, DecodeEvent.READ_FAILED, report.reason, report.detail)

    def _finish_reading(self, room: DecodeRoom) -> None:
        if room.last_seen and room.reads == 0 and not room.waiting:
            self.apply(room, DecodeEvent.ALL_READ)

    # -- frames ----------------------------------------------------------------------------------------------

    def _frame(self, link: Link, frame: Frame) -> None:
        match frame:
            case frames.Hello():
                self._settle_link(self.links.greeted(link, frame), link)
            case frames.Heartbeat():
                link.pulse.beat(self.clock.monotonic(), frame.loop_tick, frame.longest_step_s)
            case frames.Goodbye():
                detail = f"{link.instance} left: {frame.detail}"
                self._settle_link(LinkLost(FailReason.PEER_GONE, detail), link)
            case frames.Ready():
                self._ready(link, frame)
            case frames.Committed():
                link.outbox.answer((frame.room, Kind.COMMIT, 0))
                self._room_event(link, frame, DecodeEvent.COMMITTED)
            case frames.Gone():
                detail = f"{link.instance} no longer holds the pages: {frame.reason}: {frame.detail}"
                self._room_event(link, frame, DecodeEvent.GONE, FailReason.GONE, detail)
            case frames.Failed() | frames.Refused():
                reason = reason_of_end(frame)
                detail = f"{link.instance}: {frame.detail}"
                self._room_event(link, frame, DecodeEvent.PEER_FAILED, reason, detail)
            case frames.Ack():
                link.outbox.answer((frame.room, frame.of, frame.index))
                if frame.of == Kind.OFFER:
                    self._room_event(link, frame, DecodeEvent.PAIR_ACK)
            case frames.Nack():
                self._nacked(link, frame)
            case _:
                self.links.nack(link, frame, "not a frame for decode")

    def _room_event(
        self,
        link: Link,
        frame: Frame,
        event: DecodeEvent,
        reason: FailReason | None = None,
        detail: str = "",
    ) -> None:
        number = frames.room_of(frame) or 0
        room = self._numbers.get(number)
        if room is None:
            self._answer_for_absent(link, frame, event)
        elif room.link is not link:
            self.links.nack(link, frame, "the room is bound to another incarnation")
        else:
            self.apply(room, event, reason, detail, frame)

    def _answer_for_absent(self, link: Link, frame: Frame, event: DecodeEvent) -> None:
        for action in decode_step(DecodeState.ABSENT, event).actions:
            if action is Action.ACK:
                self.links.send(link, frames.Ack(*key_of(frame)))
            elif action is Action.NACK:
                self.links.nack(link, frame, "unknown room")

    def _ready(self, link: Link, ready: frames.Ready) -> None:
        room = self._numbers.get(ready.room)
        if room is None or room.link is not link:
            self._room_event(link, ready, DecodeEvent.READY)
            return
        if ready.first_page < room.next_page:
            self.links.send(link, frames.Ack(*key_of(ready)))
            return
        if ready.first_page > room.next_page:
            return  # An earlier chunk was lost; both will be repeated.
        wrong = self._wrong(room, ready)
        if wrong is not None:
            self.apply(room, DecodeEvent.FAIL, FailReason.READ_FAILED, f"unusable READY: {wrong}")
            return
        link.outbox.answer((ready.room, Kind.OFFER, 0))
        self._journal.mark(room.record, Stage.PAIRED)
        room.next_page += len(ready.pages)
        room.waiting.append(ready)
        finishes = ready.last and ready.first_token is not None and ready.first_token.finish is not None
        if ready.last:
            room.last_seen, room.first = True, ready.first_token
        if finishes:
            room.waiting.clear()
        self.apply(room, DecodeEvent.READY_FINISHES if finishes else DecodeEvent.READY, frame=ready)

    def _wrong(self, room: DecodeRoom, ready: frames.Ready) -> str | None:
        """Return what makes a chunk unusable: everything here comes from another process."""
        place = room.link.place
        if place is None or not ready.pages:
            return "no pages"
        if not all(0 <= page < place.layout.pages for page in ready.pages):
            return "a page outside the source's pool"
        end = ready.first_page + len(ready.pages)
        if end > room.total_pages or ready.last != (end == room.total_pages):
            return f"chunk ends at page {end} of {room.total_pages}, last: {ready.last}"
        if ready.last and ready.first_token is None:
            return "the last chunk brings no token"
        if self.config.checksums and len(ready.checksums) != 4 * len(ready.pages) * self.geometry.kv_heads:
            return "checksums missing or of the wrong length"
        return None

    def _nacked(self, link: Link, nack: frames.Nack) -> None:
        if nack.room is None:
            if nack.of in (Kind.HELLO, Kind.HEARTBEAT):
                detail = f"{link.instance} does not know this link any more: {nack.reason}"
                self._settle_link(LinkLost(FailReason.PEER_GONE, detail), link)
            return
        link.outbox.answer((nack.room, nack.of, 0))
        if nack.of in (Kind.OFFER, Kind.COMMIT):
            reason = FailReason.GONE if nack.of == Kind.COMMIT else FailReason.PEER_REFUSED
            detail = f"{link.instance}: {nack.reason}"
            self._room_event(link, nack, DecodeEvent.NACK, reason, detail)

    # -- the table and its actions ---------------------------------------------------------------------------

    def apply(
        self,
        room: DecodeRoom,
        event: DecodeEvent,
        reason: FailReason | None = None,
        detail: str = "",
        frame: Frame | None = None,
    ) -> None:
        """Take one step of the table and carry out its actions."""
        before = room.state
        entry = decode_step(before, event)
        assert isinstance(entry.state, DecodeState)
        room.state = entry.state
        if Action.TELL_FAILED in entry.actions:
            room.reason, room.detail = reason or FailReason.READ_FAILED, detail
        elif room.state is not before and room.state is not DecodeState.ABSENT:
            room.record.state = shown(room.state)
        if event is DecodeEvent.PAIR_ACK and before is DecodeState.OFFERED:
            self._journal.mark(room.record, Stage.PAIRED)
            room.deadline = float("inf")
        if room.state is DecodeState.WANTING and before is not DecodeState.WANTING:
            room.deadline = float("inf")
        for action in entry.actions:
            self._actions[action](room, frame)
        if room.state is DecodeState.ABSENT:
            self._drop(room)

    def _drop(self, room: DecodeRoom) -> None:
        self.rooms.pop(room.rid, None)
        if self._numbers.get(room.number) is room:
            del self._numbers[room.number]

    def _tell_failed(self, room: DecodeRoom, _: Frame | None) -> None:
        reason = room.reason or FailReason.READ_FAILED
        room.link.outbox.forget_room(room.number)
        room.waiting.clear()
        room.deadline = float("inf")
        room.record.state, room.record.reason = "failed", reason
        self.counters.transfers[reason, room.link.instance] += 1
        self.events.put(Failed(room.rid, reason, room.detail))

    def _tell_landed(self, room: DecodeRoom, _: Frame | None) -> None:
        assert room.first is not None
        room.link.outbox.forget_room(room.number)
        # Only a room whose grant may still be under way has to be remembered.
        remembered_s = 0.0 if room.is_granted else self.config.pairing_timeout_s
        room.deadline = self.clock.monotonic() + remembered_s
        self._journal.mark(room.record, Stage.LANDED)
        instance = room.link.instance
        self.counters.transfers["landed", instance] += 1
        self.counters.bytes_read[instance] += room.record.kv_bytes
        self.counters.seconds[instance] += room.record.transfer_s
        self.events.put(Landed(room.rid, room.first))

    def _tell_fenced(self, room: DecodeRoom, _: Frame | None) -> None:
        if room.is_granted:
            self.events.put(Fenced(room.rid))

    def _want_pages(self, room: DecodeRoom, _: Frame | None) -> None:
        self.events.put(WantPages(room.rid))

    def _ack(self, room: DecodeRoom, frame: Frame | None) -> None:
        if frame is not None:
            self.links.send(room.link, frames.Ack(*key_of(frame)))

    def _nack(self, room: DecodeRoom, frame: Frame | None) -> None:
        if frame is not None:
            self.links.nack(room.link, frame, f"not expected in state {room.state}")

    def _send_offer(self, room: DecodeRoom, _: Frame | None) -> None:
        asked = room.asked
        offer = frames.Offer(asked.room, asked.prompt_tokens, asked.prompt_hash, asked.prefix_tokens)
        self.links.push(room.link, offer)

    def _send_commit(self, room: DecodeRoom, _: Frame | None) -> None:
        room.deadline = float("inf")
        self.links.push(room.link, frames.Commit(room.number))

    def _push_end(self, room: DecodeRoom, _: Frame | None) -> None:
        reason = room.reason or FailReason.ABORTED
        unwanted = reason in (FailReason.CONTRACT_MISMATCH, FailReason.DRAINING)
        kind = frames.Refused if unwanted else frames.Abort
        self.links.push(room.link, kind(room.number, reason, room.detail))

    def _post_reads(self, room: DecodeRoom, _: Frame | None) -> None:
        for ready in room.waiting:
            skip = max(room.prefix_pages - ready.first_page, 0)
            source = tuple(ready.pages[skip:])
            if not source:
                continue
            start = ready.first_page + skip
            target = room.pages[start : start + len(source)]
            sums = ready.checksums[4 * self.geometry.kv_heads * skip :] if self.config.checksums else b""
            room.reads += 1
            self._order(PostRead(room.link.key, room.rid, start, source, target, sums))
            self._journal.mark(room.record, Stage.READING)
        room.waiting.clear()
        self._finish_reading(room)

    def _fence(self, room: DecodeRoom, _: Frame | None) -> None:
        if room.reads == 0:
            self.apply(room, DecodeEvent.FENCED)
            return
        self.counters.fences += 1
        room.deadline = self.clock.monotonic() + FENCE_LIMIT_S
        self._order(FenceRoom(room.link.key, room.rid))
