"""The rendezvous that a router writes into a body: `bootstrap_host`, `bootstrap_port`, `bootstrap_room`."""

from __future__ import annotations

from typing import TypeVar

from engine.config import EngineConfig, Role
from engine.errors import RequestError
from engine.frontend.bodies import Routed
from engine.messages import RoomRef

Field = TypeVar("Field", int, str)

LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0"}
MAX_ROOM = (1 << 64) - 1


def rooms_of(body: Routed, sequences: int, config: EngineConfig, scoring: bool = False) -> list[RoomRef | None]:
    """Return where each of `sequences` meets its other leg; None where it needs no other leg.

    A list must have an entry for each sequence; a scalar room stands for room, room + 1, ... as in SGLang.
    A scoring request (no new tokens) needs no decode leg. Raises RequestError (400).
    """
    if config.role is Role.UNIFIED or (scoring and config.role is Role.PREFILL):
        return [None] * sequences
    if scoring:
        message = "a decode instance computes no prompts: send a scoring request to a prefill or unified instance"
        raise RequestError(400, "scoring_on_decode", message)
    if body.bootstrap_room is None:
        raise RequestError(400, "room_missing", _no_room_text(config.role), "bootstrap_room")
    hosts = _spread(body.bootstrap_host, sequences, "bootstrap_host")
    ports = _spread(body.bootstrap_port, sequences, "bootstrap_port")
    rooms = _rooms(body.bootstrap_room, sequences)
    return [_room(host, port, room, config) for host, port, room in zip(hosts, ports, rooms, strict=True)]


def normalise_peer(host: str, port: int) -> str:
    """Return `host:port` with the names of this machine made one."""
    name = host.lower()
    return f"{'127.0.0.1' if name in LOOPBACK_NAMES else name}:{port}"


def _room(host: str | None, port: int | None, room: int, config: EngineConfig) -> RoomRef:
    if not 0 <= room <= MAX_ROOM:
        raise RequestError(400, "invalid_value", f"bootstrap_room: {room} is not a 64-bit number", "bootstrap_room")
    if config.role is Role.PREFILL:
        return RoomRef(host or config.host, port or config.bootstrap_port, room)
    return RoomRef(*_peer(host, port, config), room)


def _peer(host: str | None, port: int | None, config: EngineConfig) -> tuple[str, int]:
    """Return host and port of the configured peer that the body names, as the configuration writes them."""
    known = {normalise_peer(*split_peer(peer)): split_peer(peer) for peer in config.peers}
    if host is None and port is None and len(known) == 1:
        return next(iter(known.values()))
    named = "(nothing)" if host is None else normalise_peer(host, port or 8998)
    if named not in known:
        message = f"bootstrap_host: {named} is no known prefill peer; this decode knows {', '.join(sorted(known))}"
        raise RequestError(400, "unknown_peer", message, "bootstrap_host")
    return known[named]


def split_peer(peer: str) -> tuple[str, int]:
    """Return host and port of `host:port`. Raises ValueError when it is not of that form."""
    host, _, port = peer.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{peer!r} is not host:port")
    return host, int(port)


def _spread(value: Field | list[Field] | list[Field | None] | None, count: int, name: str) -> list[Field | None]:
    if not isinstance(value, list):
        return [value] * count
    _check_count(value, count, name)
    return list(value)


def _rooms(value: int | list[int], count: int) -> list[int]:
    if isinstance(value, int):
        return [value + offset for offset in range(count)]
    _check_count(value, count, "bootstrap_room")
    return value


def _check_count(values: list[Field] | list[Field | None], count: int, name: str) -> None:
    if len(values) != count:
        message = f"{name}: {len(values)} entries for {count} sequences"
        raise RequestError(400, "invalid_value", message, name)


def _no_room_text(role: Role) -> str:
    return (
        f"this is a {role} instance: a generating request needs bootstrap_host, bootstrap_port and "
        "bootstrap_room; send it to the router, or to a unified instance"
    )
