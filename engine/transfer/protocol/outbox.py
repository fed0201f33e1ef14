"""Frames that are repeated until they are answered (invariant 2). Pure: the clock comes in as a number."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.transfer.protocol.clocks import RESEND_S
from engine.transfer.protocol.frames import Frame, Ready, kind_of, room_of

Key = tuple[int, str, int]
"""Room, kind, index (of a READY: its first page)."""


def key_of(frame: Frame) -> Key:
    """Return what an ACK has to name to answer this frame."""
    index = frame.first_page if isinstance(frame, Ready) else 0
    return room_of(frame) or 0, kind_of(frame), index


@dataclass(slots=True)
class Outbox:
    """Unanswered frames to one peer incarnation; gone when the incarnation is."""

    _waiting: dict[Key, tuple[Frame, float]] = field(default_factory=dict)

    def add(self, frame: Frame, now: float) -> None:
        """Repeat `frame` until `answer` or `forget_room`. The caller sends it the first time."""
        self._waiting[key_of(frame)] = (frame, now + RESEND_S)

    def answer(self, key: Key) -> Frame | None:
        """Stop repeating the frame of that key and return it."""
        found = self._waiting.pop(key, None)
        return found[0] if found else None

    def forget_room(self, room: int) -> None:
        """Stop repeating everything about a room, because an end replaces it."""
        for key in [key for key in self._waiting if key[0] == room]:
            del self._waiting[key]

    def due(self, now: float) -> list[Frame]:
        """Return the frames to send again now."""
        due = [(key, frame) for key, (frame, at) in self._waiting.items() if at <= now]
        for key, frame in due:
            self._waiting[key] = (frame, now + RESEND_S)
        return [frame for _, frame in due]

    def __len__(self) -> int:
        return len(self._waiting)
