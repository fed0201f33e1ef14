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


def rooms_of(
    body: Routed, prompts: int, choices: int, config: EngineConfig, scoring: bool = False
) -> list[RoomRef | None]:
    """Return where each sequence (`choices` of each prompt) meets its other leg; None where it needs none.

    A list has an entry for each sequence, or for each prompt (smg 1.13.0 with several prompts and n > 1). One room for
    several sequences stands for room, room + 1, ... as in SGLang: so both legs count alike. A scoring request (no new
    tokens) needs no decode leg. Raises RequestError (400).
    """
    sequences = prompts * choices
    if config.role is Role.UNIFIED or (scoring and config.role is Role.PREFILL):
        return [None] * sequences
    if scoring:
        message = "a decode instance computes no prompts: send a scoring request to a prefill or unified instance"
        raise RequestError(400, "scoring_on_decode", message)
    if body.bootstrap_room is None:
        raise RequestError(400, "room_missing", _no_room_text(config.role), "bootstrap_room")
    hosts = _spread(body.bootstrap_host, prompts, choices, "bootstrap_host")
    ports = _spread(body.bootstrap_port, prompts, choices, "bootstrap_port")
    rooms = _rooms(body.bootstrap_room, prompts, choices)
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


def _spread(
    value: Field | list[Field] | list[Field | None] | None, prompts: int, choices: int, name: str
) -> list[Field | None]:
    """Return one entry for each sequence."""
    if not isinstance(value, list):
        return [value] * (prompts * choices)
    _check_count(len(value), prompts, choices, name)
    each = 1 if len(value) == prompts * choices else choices
    return [entry for entry in value for _ in range(each)]


def _rooms(value: int | list[int], prompts: int, choices: int) -> list[int]:
    if isinstance(value, int):
        return [value + offset for offset in range(prompts * choices)]
    _check_count(len(value), prompts, choices, "bootstrap_room")
    each = 1 if len(value) == prompts * choices else choices
    return [room + offset for room in value for offset in range(each)]


def _check_count(entries: int, prompts: int, choices: int, name: str) -> None:
    if entries not in (prompts, prompts * choices):
        message = f"{name}: {entries} entries for {prompts * choices} sequences"
        raise RequestError(400, "invalid_value", message, name)


def _no_room_text(role: Role) -> str:
    return (
        f"this is a {role} instance: a generating request needs bootstrap_host, bootstrap_port and "
        "bootstrap_room; send it to the router, or to a unified instance"
    )
