"""What decode does with each frame from a prefill: check it, then turn it into an event of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.observe.records import Stage
from engine.transfer.control.loop import reason_of_end
from engine.transfer.decode.link_keeper import LinkLost
from engine.transfer.decode.links import Link
from engine.transfer.decode.rooms import DecodeRoom
from engine.transfer.interface import FailReason
from engine.transfer.protocol import frames
from engine.transfer.protocol.frames import Frame, Kind, kind_of
from engine.transfer.protocol.meaning import DECODE_HEARS, DECODE_HEARS_ACK_OF, DECODE_HEARS_NACK_OF
from engine.transfer.protocol.outbox import key_of
from engine.transfer.protocol.rooms import Action, DecodeEvent, DecodeState, decode_step

if TYPE_CHECKING:
    from engine.transfer.decode.control import DecodeControl


class DecodeFrames:
    """The frames of all links; part of decode's control thread."""

    def __init__(self, control: DecodeControl) -> None:
        self._control = control

    def handle(self, link: Link, frame: Frame) -> None:
        """Do what one frame asks for; raises nothing that a peer could cause."""
        match frame:
            case frames.Hello():
                self._control.settle_link(self._control.links.greeted(link, frame), link)
            case frames.Heartbeat():
                self._control.links.beaten(link, frame)
            case frames.Goodbye():
                detail = f"{link.instance} left: {frame.detail}"
                self._control.settle_link(LinkLost(FailReason.PEER_GONE, detail), link)
            case frames.Ready():
                self._ready(link, frame)
            case frames.Committed():
                link.outbox.answer((frame.room, Kind.COMMIT, 0))
                self._room_event(link, frame, DECODE_HEARS[Kind.COMMITTED])
            case frames.Gone():
                detail = f"{link.instance} no longer holds the pages: {frame.reason}: {frame.detail}"
                self._room_event(link, frame, DECODE_HEARS[Kind.GONE], FailReason.GONE, detail)
            case frames.Failed() | frames.Refused():
                reason = reason_of_end(frame)
                detail = f"{link.instance}: {frame.detail}"
                self._room_event(link, frame, DECODE_HEARS[Kind(kind_of(frame))], reason, detail)
            case frames.Ack():
                link.outbox.answer((frame.room, frame.of, frame.index))
                if (event := DECODE_HEARS_ACK_OF.get(frame.of)) is not None:
                    self._room_event(link, frame, event)
            case frames.CanaryReady() if self._control.canary is not None:
                self._control.canary.ready(link, frame)
            case frames.Nack():
                self._nacked(link, frame)
            case _:
                self._control.links.nack(link, frame, "not a frame for decode")

    def _room_event(
        self,
        link: Link,
        frame: Frame,
        event: DecodeEvent,
        reason: FailReason | None = None,
        detail: str = "",
    ) -> None:
        number = frames.room_of(frame) or 0
        room = self._control.steps.numbers.get(number)
        if room is None:
            self._answer_for_absent(link, frame, event)
        elif room.link is not link:
            self._control.links.nack(link, frame, "the room is bound to another incarnation")
        else:
            self._control.steps.apply(room, event, reason, detail, frame)

    def _answer_for_absent(self, link: Link, frame: Frame, event: DecodeEvent) -> None:
        for action in decode_step(DecodeState.ABSENT, event).actions:
            if action is Action.ACK:
                self._control.links.send(link, frames.Ack(*key_of(frame)))
            elif action is Action.NACK:
                self._control.links.nack(link, frame, "unknown room")

    def _ready(self, link: Link, ready: frames.Ready) -> None:
        room = self._control.steps.numbers.get(ready.room)
        if room is None or room.link is not link:
            self._room_event(link, ready, DECODE_HEARS[Kind.READY])
            return
        if ready.first_page < room.next_page:
            self._control.links.send(link, frames.Ack(*key_of(ready)))
            return
        if ready.first_page > room.next_page:
            return  # An earlier chunk was lost; both will be repeated.
        wrong = self._wrong(room, ready)
        if wrong is not None:
            self._control.steps.apply(room, DecodeEvent.FAIL, FailReason.READ_FAILED, f"unusable READY: {wrong}")
            return
        link.outbox.answer((ready.room, Kind.OFFER, 0))
        self._control.journal.mark(room.record, Stage.PAIRED)
        room.next_page += len(ready.pages)
        room.waiting.append(ready)
        finishes = ready.last and ready.first_token is not None and ready.first_token.finish is not None
        if ready.last:
            room.last_seen, room.first = True, ready.first_token
        if finishes:
            room.waiting.clear()
        self._control.steps.apply(room, DecodeEvent.READY_FINISHES if finishes else DecodeEvent.READY, frame=ready)

    def _wrong(self, room: DecodeRoom, ready: frames.Ready) -> str | None:
        """Return what makes a chunk unusable: everything here comes from another process."""
        if not ready.pages:
            return "no pages"
        if not all(0 <= page < room.link.pages for page in ready.pages):
            return "a page outside the source's pool"
        end = ready.first_page + len(ready.pages)
        if end > room.total_pages or ready.last != (end == room.total_pages):
            return f"chunk ends at page {end} of {room.total_pages}, last: {ready.last}"
        if ready.last and ready.first_token is None:
            return "the last chunk brings no token"
        sizes = [4 * len(ready.pages) * rank.geometry.kv_heads for rank in room.link.ranks]
        if self._control.config.checksums and [len(sums) for sums in ready.checksums] != sizes:
            return "checksums missing or of the wrong length"
        return None

    def _nacked(self, link: Link, nack: frames.Nack) -> None:
        if nack.room is None:
            if nack.of in (Kind.HELLO, Kind.HEARTBEAT):
                detail = f"{link.instance} does not know this link any more: {nack.reason}"
                self._control.settle_link(LinkLost(FailReason.PEER_GONE, detail), link)
            return
        link.outbox.answer((nack.room, nack.of, 0))
        if nack.of in DECODE_HEARS_NACK_OF:
            reason = FailReason.GONE if nack.of == Kind.COMMIT else FailReason.PEER_REFUSED
            detail = f"{link.instance}: {nack.reason}"
            self._room_event(link, nack, DecodeEvent.NACK, reason, detail)
