"""Decode's rooms and what the reader's facade tells its control thread about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.observe.records import RoomRecord
from engine.transfer.decode.links import Link
from engine.transfer.interface import FailReason, FirstToken
from engine.transfer.protocol.frames import Ready
from engine.transfer.protocol.rooms import DecodeState


@dataclass(frozen=True, slots=True)
class OpenRoom:
    """From the loop: offer a room."""

    rid: str
    room: int
    bootstrap: str
    prompt_tokens: int
    prompt_hash: bytes
    prefix_tokens: int
    record: RoomRecord


@dataclass(frozen=True, slots=True)
class GrantPages:
    """From the loop: pool pages of the whole prompt, cached prefix included."""

    rid: str
    pages: tuple[int, ...]
    prefix_tokens: int | None = None
    """None: as many as the room was opened with."""


@dataclass(frozen=True, slots=True)
class FailRoom:
    """From the loop: end a room."""

    rid: str
    reason: FailReason
    detail: str


@dataclass(frozen=True, slots=True)
class RefuseRoom:
    """From the loop: tell prefill that this room will never be offered."""

    room: int
    bootstrap: str
    detail: str


@dataclass(frozen=True, slots=True)
class SumPrompt:
    """From the loop: have every rank sum these pages now."""

    rid: str
    pages: tuple[int, ...]


@dataclass(slots=True)
class DecodeRoom:
    """One transfer into this instance's pages."""

    asked: OpenRoom
    link: Link
    total_pages: int
    prefix_pages: int
    state: DecodeState = DecodeState.ABSENT
    deadline: float = float("inf")
    """When EXPIRED happens: pairing, or the end of being remembered."""
    pages: tuple[int, ...] = ()
    is_granted: bool = False
    waiting: list[Ready] = field(default_factory=list)
    """Chunks that are ready and not posted yet."""
    next_page: int = 0
    """First page of the next chunk."""
    reads: int = 0
    """Posted, over all lanes, and not answered yet."""
    unfenced: set[str] = field(default_factory=set)
    """Lanes whose READs may still touch the pages of a room that failed."""
    lane_seconds: dict[str, float] = field(default_factory=dict)
    """From post to DONE, by lane: they read side by side."""
    has_failed_read: bool = False
    """A READ ended in an error: only the read thread can tell when its pages are out of reach."""
    last_seen: bool = False
    first: FirstToken | None = None
    reason: FailReason | None = None
    detail: str = ""

    @property
    def rid(self) -> str:
        return self.asked.rid

    @property
    def number(self) -> int:
        return self.asked.room

    @property
    def record(self) -> RoomRecord:
        return self.asked.record
