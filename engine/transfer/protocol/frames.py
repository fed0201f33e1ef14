"""Control frames: what one prefill and one decode say to each other, and how it is written.

On the wire a frame is one byte of protocol version, then a msgpack array `[src, dst, rank, body]`. `src` and
`dst` are incarnations, so that a frame meant for the process before a restart is recognised by its receiver.
Every frame may be lost, repeated or late: each handler is idempotent, and whoever needs an answer repeats its
frame until it comes.

| frame | from | says | answered by |
|---|---|---|---|
| HELLO | both | who I am, my contract, where my KV pool is | HELLO (prefill to decode) |
| OFFER | decode | room, prompt length and hash: I want this prompt's KV | ACK when paired |
| REFUSED | both | I will not take part in this room | ACK |
| READY | prefill | a chunk may be read: pages, checksums; the last with the first token | ACK |
| COMMIT | decode | I read and verified everything | COMMITTED or GONE |
| COMMITTED | prefill | I held every page until now; the room is yours | ACK |
| GONE | prefill | I freed the pages before COMMIT came | - |
| FAILED | prefill | the room ended, with the reason | ACK |
| ABORT | decode | the room ended, with the reason | ACK |
| ACK | both | I have that frame | - |
| NACK | both | I cannot use that frame, and why | - |
| HEARTBEAT | both | where my scheduler loop is | - |
| CANARY | decode | fill your canary page with this nonce | CANARY_READY |
| CANARY_READY | prefill | the page may be read | - |
| CANARY_READ | decode | what I found in it | - |
| GOODBYE | both | my process leaves | - |
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from engine import PROTOCOL_VERSION
from engine.transfer.interface import FirstToken

MAX_FRAME_BYTES = 1 << 20
"""Longer frames are refused by the socket, which breaks the connection, and by `decode`; so READYs are cut."""


class Kind(StrEnum):
    """Tags of the frames, as they stand on the wire and in metrics."""

    HELLO = "hello"
    OFFER = "offer"
    REFUSED = "refused"
    READY = "ready"
    COMMIT = "commit"
    COMMITTED = "committed"
    GONE = "gone"
    FAILED = "failed"
    ABORT = "abort"
    ACK = "ack"
    NACK = "nack"
    HEARTBEAT = "heartbeat"
    GOODBYE = "goodbye"
    CANARY = "canary"
    CANARY_READY = "canary_ready"
    CANARY_READ = "canary_read"


class Geometry(msgspec.Struct, frozen=True):
    """Where a rank's KV pool lies and how it is cut; `address` is meaningful to NIXL only, 0 from decode."""

    address: int
    layers: int
    kv_heads: int
    pages: int
    page_size: int
    head_dim: int
    dtype: str
    item_bytes: int


class RankPool(msgspec.Struct, frozen=True):
    """One rank's KV pool and, on prefill, the NIXL agent through which it is read."""

    first_head: int
    """The model's KV heads `first_head..first_head + geometry.kv_heads` are in it."""
    geometry: Geometry
    nixl_metadata: bytes = b""
    """Empty from decode, which only reads."""
    source: int = 0
    """Which of the rank's data-plane processes that agent lives in; 0 from decode."""

    @property
    def kv_heads(self) -> range:
        """The KV heads that are in it, in the model's numbering."""
        return range(self.first_head, self.first_head + self.geometry.kv_heads)


class Hello(msgspec.Struct, frozen=True, tag=Kind.HELLO.value):
    instance: str
    role: str
    contract: dict[str, str]
    ranks: list[RankPool]
    """By rank; pages have the same numbers in all of them."""
    source: int = 0
    """Counts the changes of `ranks`; 0 from decode."""


class Offer(msgspec.Struct, frozen=True, tag=Kind.OFFER.value):
    room: int
    prompt_tokens: int
    prompt_hash: bytes
    prefix_tokens: int
    """Tokens that decode has cached and will not read."""


class Refused(msgspec.Struct, frozen=True, tag=Kind.REFUSED.value):
    room: int
    reason: str
    detail: str


class Ready(msgspec.Struct, frozen=True, tag=Kind.READY.value):
    room: int
    first_page: int
    """Index in the prompt of the chunk's first page."""
    pages: list[int]
    """Pool pages of the source, in prompt order."""
    checksums: list[bytes]
    """By source rank: crc32 as little-endian uint32 `[pages, kv heads of that rank]`; empty when switched off."""
    last: bool
    first_token: FirstToken | None = None


class Commit(msgspec.Struct, frozen=True, tag=Kind.COMMIT.value):
    room: int


class Committed(msgspec.Struct, frozen=True, tag=Kind.COMMITTED.value):
    room: int


class Gone(msgspec.Struct, frozen=True, tag=Kind.GONE.value):
    room: int
    reason: str
    detail: str


class Failed(msgspec.Struct, frozen=True, tag=Kind.FAILED.value):
    room: int
    reason: str
    detail: str


class Abort(msgspec.Struct, frozen=True, tag=Kind.ABORT.value):
    room: int
    reason: str
    detail: str


class Ack(msgspec.Struct, frozen=True, tag=Kind.ACK.value):
    room: int
    of: str
    """Kind of the frame that arrived."""
    index: int = 0
    """Of a READY: its `first_page`."""


class Nack(msgspec.Struct, frozen=True, tag=Kind.NACK.value):
    room: int | None
    of: str
    reason: str


class Heartbeat(msgspec.Struct, frozen=True, tag=Kind.HEARTBEAT.value):
    loop_tick: int
    longest_step_s: float
    source: int = 0
    """Prefill: as in its HELLO. Another number than there: the HELLO that told of it was lost, ask again."""


class Goodbye(msgspec.Struct, frozen=True, tag=Kind.GOODBYE.value):
    detail: str


class Canary(msgspec.Struct, frozen=True, tag=Kind.CANARY.value):
    nonce: bytes


class CanaryReady(msgspec.Struct, frozen=True, tag=Kind.CANARY_READY.value):
    nonce: bytes
    page: int


class CanaryRead(msgspec.Struct, frozen=True, tag=Kind.CANARY_READ.value):
    nonce: bytes
    ok: bool
    seconds: float
    """From post to DONE."""
    detail: str


End = Refused | Failed | Abort
Frame = (
    Hello
    | Offer
    | Refused
    | Ready
    | Commit
    | Committed
    | Gone
    | Failed
    | Abort
    | Ack
    | Nack
    | Heartbeat
    | Goodbye
    | Canary
    | CanaryReady
    | CanaryRead
)


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A frame with its sender's and receiver's incarnation and the sender's rank."""

    src: str
    dst: str
    rank: int
    body: Frame


class _Outer(msgspec.Struct, frozen=True, array_like=True):
    src: str
    dst: str
    rank: int
    body: msgspec.Raw


class _Tag(msgspec.Struct, frozen=True):
    type: str


class BadFrame(msgspec.Struct, frozen=True):
    """Bytes that are no frame of ours."""

    why: str
    unknown_kind: str | None = None
    """Set when only the body's kind is unknown: a newer peer, worth a NACK."""


_encoder = msgspec.msgpack.Encoder()
_outer = msgspec.msgpack.Decoder(_Outer)
_body: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
_tag = msgspec.msgpack.Decoder(_Tag)
_version = bytes([PROTOCOL_VERSION])


def encode(envelope: Envelope) -> bytes:
    """Return the bytes of a frame."""
    return _version + _encoder.encode(envelope)


def decode(data: bytes) -> Envelope | BadFrame:
    """Return the frame in `data`, or why there is none; never raises."""
    if not data or len(data) > MAX_FRAME_BYTES:
        return BadFrame(f"{len(data)} bytes long, allowed are 1 to {MAX_FRAME_BYTES}")
    if data[0] != PROTOCOL_VERSION:
        return BadFrame(f"protocol version {data[0]}, ours is {PROTOCOL_VERSION}")
    try:
        outer = _outer.decode(data[1:])
    except (msgspec.DecodeError, RecursionError) as error:
        return BadFrame(f"not an envelope: {error}")
    try:
        return Envelope(outer.src, outer.dst, outer.rank, _body.decode(outer.body))
    except (msgspec.DecodeError, RecursionError) as error:
        return BadFrame(f"not a frame: {error}", _unknown_kind(outer.body))


def room_of(frame: Frame) -> int | None:
    """Return the room a frame speaks of, if it speaks of one."""
    return getattr(frame, "room", None)


def kind_of(frame: Frame) -> str:
    """Return the frame's tag."""
    return str(frame.__struct_config__.tag)


def _unknown_kind(body: bytes | msgspec.Raw) -> str | None:
    try:
        kind = _tag.decode(body).type
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if kind in set(Kind) else kind[:32]
