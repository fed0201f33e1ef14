"""Carries out the `DECODE` table: one step at a time, with the actions it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.observe.records import Stage
from engine.transfer.data.checksums import sums_of_heads
from engine.transfer.data.read_orders import FenceRoom, Order, PostRead
from engine.transfer.decode.links import Lane
from engine.transfer.decode.rooms import DecodeRoom
from engine.transfer.interface import Failed, FailReason, Fenced, Landed, WantPages
from engine.transfer.protocol import frames
from engine.transfer.protocol.frames import Frame
from engine.transfer.protocol.meaning import DECODE_SENDS, FORGETS
from engine.transfer.protocol.outbox import key_of
from engine.transfer.protocol.rooms import Action, DecodeEvent, DecodeState, decode_step, shown

if TYPE_CHECKING:
    from engine.transfer.decode.control import DecodeControl

FENCE_LIMIT_S = 10.0
"""A fence that takes longer hangs inside NIXL: its pages can never be given back, so the instance ends."""


class DecodeSteps:
    """All rooms of a decode; part of its control thread. `order` goes to the read thread."""

    def __init__(self, control: DecodeControl, order: Callable[[int, Order], None]) -> None:
        self.rooms: dict[str, DecodeRoom] = {}
        """By rid."""
        self.numbers: dict[int, DecodeRoom] = {}
        """By room number."""
        self._control = control
        self._order = order
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

    def finish_reading(self, room: DecodeRoom) -> None:
        """Ask for COMMITTED once every chunk was read and verified."""
        if room.last_seen and room.reads == 0 and not room.waiting:
            self.apply(room, DecodeEvent.ALL_READ)

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
        if (flight := self._control.journal.flight) is not None:
            flight.room("decode", room.number, before, event, entry.state, room.rid)
        if Action.TELL_FAILED in entry.actions:
            room.reason, room.detail = reason or FailReason.READ_FAILED, detail
        elif room.state is not before and room.state is not DecodeState.ABSENT:
            room.record.state = shown(room.state)
        if event is DecodeEvent.PAIR_ACK and before is DecodeState.OFFERED:
            self._control.journal.mark(room.record, Stage.PAIRED)
            room.deadline = float("inf")
        if room.state is DecodeState.WANTING and before is not DecodeState.WANTING:
            room.deadline = float("inf")
        for action in entry.actions:
            if action in FORGETS:
                room.link.outbox.forget_room(room.number)
            self._actions[action](room, frame)
        if room.state is DecodeState.ABSENT:
            self._drop(room)

    def _drop(self, room: DecodeRoom) -> None:
        self.rooms.pop(room.rid, None)
        if self.numbers.get(room.number) is room:
            del self.numbers[room.number]

    def _tell_failed(self, room: DecodeRoom, _: Frame | None) -> None:
        reason = room.reason or FailReason.READ_FAILED
        room.waiting.clear()
        room.deadline = float("inf")
        room.record.state, room.record.reason = "failed", reason
        self._control.counters.transfers[reason, room.link.instance] += 1
        self._control.events.put(Failed(room.rid, reason, room.detail))

    def _tell_landed(self, room: DecodeRoom, _: Frame | None) -> None:
        assert room.first is not None
        # Only a room whose grant may still be under way has to be remembered.
        remembered_s = 0.0 if room.is_granted else self._control.config.pairing_timeout_s
        room.deadline = self._control.clock.monotonic() + remembered_s
        self._control.journal.mark(room.record, Stage.LANDED)
        instance = room.link.instance
        self._control.counters.transfers["landed", instance] += 1
        self._control.counters.bytes_read[instance] += room.record.kv_bytes
        self._control.counters.seconds[instance] += room.record.transfer_s
        self._control.events.put(Landed(room.rid, room.first))

    def _tell_fenced(self, room: DecodeRoom, _: Frame | None) -> None:
        if room.is_granted:
            self._control.events.put(Fenced(room.rid))

    def _want_pages(self, room: DecodeRoom, _: Frame | None) -> None:
        self._control.events.put(WantPages(room.rid))

    def _ack(self, room: DecodeRoom, frame: Frame | None) -> None:
        if frame is not None:
            self._control.links.send(room.link, frames.Ack(*key_of(frame)))

    def _nack(self, room: DecodeRoom, frame: Frame | None) -> None:
        if frame is not None:
            self._control.links.nack(room.link, frame, f"not expected in state {room.state}")

    def _send_offer(self, room: DecodeRoom, _: Frame | None) -> None:
        asked = room.asked
        offer = frames.Offer(asked.room, asked.prompt_tokens, asked.prompt_hash, asked.prefix_tokens)
        self._say(room, Action.SEND_OFFER, offer)

    def _send_commit(self, room: DecodeRoom, _: Frame | None) -> None:
        room.deadline = float("inf")
        self._say(room, Action.SEND_COMMIT, frames.Commit(room.number))

    def _push_end(self, room: DecodeRoom, _: Frame | None) -> None:
        reason = room.reason or FailReason.ABORTED
        unwanted = reason in (FailReason.CONTRACT_MISMATCH, FailReason.DRAINING)
        kind = frames.Refused if unwanted else frames.Abort
        self._say(room, Action.PUSH_END, kind(room.number, reason, room.detail))

    def _say(self, room: DecodeRoom, action: Action, frame: Frame) -> None:
        how = DECODE_SENDS[action]
        if how.replaces:
            room.link.outbox.forget_room(room.number)
        (self._control.links.push if how.is_repeated else self._control.links.send)(room.link, frame)

    def _post_reads(self, room: DecodeRoom, _: Frame | None) -> None:
        for ready in room.waiting:
            skip = max(room.prefix_pages - ready.first_page, 0)
            source = tuple(ready.pages[skip:])
            if not source:
                continue
            start = ready.first_page + skip
            target = room.pages[start : start + len(source)]
            for lane in room.link.lanes:
                sums = self._sums(room, ready, skip, lane)
                room.reads += 1
                self._order(lane.heads.reader_rank, PostRead(lane.key, room.rid, start, source, target, sums))
            self._control.journal.mark(room.record, Stage.READING)
        room.waiting.clear()
        self.finish_reading(room)

    def _sums(self, room: DecodeRoom, ready: frames.Ready, skip: int, lane: Lane) -> bytes:
        """Return the checksums of what a lane reads of a chunk from its page `skip` on."""
        if not self._control.config.checksums:
            return b""
        source = lane.heads.source_rank
        return sums_of_heads(ready.checksums[source], room.link.ranks[source].geometry.kv_heads, skip, lane.heads)

    def _fence(self, room: DecodeRoom, _: Frame | None) -> None:
        if room.reads == 0 and not room.has_failed_read:
            self.apply(room, DecodeEvent.FENCED)
            return
        self._control.counters.fences += 1
        room.deadline = self._control.clock.monotonic() + FENCE_LIMIT_S
        room.unfenced = {lane.key for lane in room.link.lanes}
        for lane in room.link.lanes:
            self._order(lane.heads.reader_rank, FenceRoom(lane.key, room.rid))

    def fenced(self, room: DecodeRoom, lane: str) -> None:
        """Take the answer of one lane, which may come twice; the pages are free when all have answered."""
        room.unfenced.discard(lane)
        if not room.unfenced:
            self.apply(room, DecodeEvent.FENCED)
