"""What rank 0's control thread orders from a decode rank's read worker, and what that reports.

A *lane* is what one rank of decode reads from one rank of one prefill incarnation: a run of heads, by an agent of its
own.
"""

from __future__ import annotations

import msgspec

from engine.transfer.data.runs import Place
from engine.transfer.interface import FailReason
from engine.transfer.protocol.head_runs import HeadRun


class OpenPeer(msgspec.Struct, frozen=True, tag="open_peer"):
    """Make an agent for a lane; `agent_name` gets the generation appended."""

    lane: str
    agent_name: str
    metadata: bytes
    place: Place
    heads: HeadRun
    """What this lane reads of every page."""


class ClosePeer(msgspec.Struct, frozen=True, tag="close_peer"):
    """The incarnation is gone: drop its agent; its fences are then done."""

    lane: str


class PostRead(msgspec.Struct, frozen=True, tag="post_read"):
    """Read one chunk: `source_pages[i]` into `target_pages[i]`, then compare with `checksums`."""

    lane: str
    rid: str
    index: int
    source_pages: tuple[int, ...]
    target_pages: tuple[int, ...]
    checksums: bytes
    """As `page_checksums` returns them for the lane's heads; empty: not verified."""


class FenceRoom(msgspec.Struct, frozen=True, tag="fence_room"):
    """Make sure that no READ of this room can touch its pages; `RoomFenced` follows."""

    lane: str
    rid: str


class SumPages(msgspec.Struct, frozen=True, tag="sum_pages"):
    """Sum this rank's heads of pages of the pool, as they are now; `PagesSummed` follows."""

    rid: str
    rank: int
    pages: tuple[int, ...]


Order = OpenPeer | ClosePeer | PostRead | FenceRoom | SumPages


class PeerOpened(msgspec.Struct, frozen=True, tag="peer_opened"):
    """A lane has an agent."""

    lane: str


class PeerUnusable(msgspec.Struct, frozen=True, tag="peer_unusable"):
    """No agent could be made for a lane."""

    lane: str
    detail: str


class ReadFinished(msgspec.Struct, frozen=True, tag="read_finished"):
    """A lane's part of a chunk was read and verified, or `reason` says why not."""

    lane: str
    rid: str
    index: int
    size_bytes: int
    seconds: float
    reason: FailReason | None = None
    detail: str = ""


class RoomFenced(msgspec.Struct, frozen=True, tag="room_fenced"):
    """No READ of this lane can touch the room's pages any more."""

    lane: str
    rid: str


class PagesSummed(msgspec.Struct, frozen=True, tag="pages_summed"):
    """`sums` as `page_checksums` returns them for all heads of the rank."""

    rid: str
    rank: int
    sums: bytes


Report = PeerOpened | PeerUnusable | ReadFinished | RoomFenced | PagesSummed
