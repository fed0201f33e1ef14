"""What a prefill's scheduler and its data-plane process say to each other, as msgpack over one socket pair.

The scheduler has at most one `Sum` unanswered, so neither side can fill the other's buffer and block.
"""

from __future__ import annotations

import socket

import msgspec

from engine.kvcache.layout import KVLayout

MAX_BYTES = 200 << 10
"""Below the kernel's default buffer; a `Summed` of `SLICE_PAGES` pages with 128 heads is 128 kB."""
SLICE_PAGES = 256
"""Pages of one `Sum`."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """First message: make the agent over the pool of this layout."""

    agent_name: str
    layout: KVLayout


class Sum(msgspec.Struct, frozen=True, tag="sum"):
    """Compute the checksums of these pages."""

    pages: list[int]


class PollTightly(msgspec.Struct, frozen=True, tag="poll_tightly"):
    """A reader is about to read or to connect: poll tightly for a while."""

    rooms_reading: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Say that you live."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The agent is there; `address` is the pool's in the data-plane process, the one that readers read from."""

    metadata: bytes
    address: int


class Summed(msgspec.Struct, frozen=True, tag="summed"):
    """Answer to `Sum`; `error` when they could not be computed."""

    checksums: bytes
    error: str = ""


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """Answer to `Ping`."""


class Unusable(msgspec.Struct, frozen=True, tag="unusable"):
    """No agent could be made; the process ends."""

    error: str


ToPlane = Open | Sum | PollTightly | Ping
FromPlane = Opened | Summed | Pong | Unusable

_encoder = msgspec.msgpack.Encoder()
_to_plane: msgspec.msgpack.Decoder[ToPlane] = msgspec.msgpack.Decoder(ToPlane)
_from_plane: msgspec.msgpack.Decoder[FromPlane] = msgspec.msgpack.Decoder(FromPlane)


class PlaneClosed(Exception):
    """The other end of the socket pair is gone."""


def send(channel: socket.socket, message: ToPlane | FromPlane) -> bool:
    """Send without blocking; False when the other side has not read for long. Raises PlaneClosed."""
    try:
        channel.send(_encoder.encode(message), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except BlockingIOError:
        return False
    except (BrokenPipeError, ConnectionResetError) as error:
        raise PlaneClosed from error
    return True


def receive_order(channel: socket.socket) -> ToPlane | None:
    """Return the scheduler's next message, or None; never blocks. Raises PlaneClosed."""
    data = _receive(channel)
    return None if data is None else _to_plane.decode(data)


def receive_answer(channel: socket.socket) -> FromPlane | None:
    """Return the data-plane process's next message, or None; never blocks. Raises PlaneClosed."""
    data = _receive(channel)
    return None if data is None else _from_plane.decode(data)


def _receive(channel: socket.socket) -> bytes | None:
    try:
        data = channel.recv(MAX_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except ConnectionResetError as error:
        raise PlaneClosed from error
    if not data:
        raise PlaneClosed
    return data
