"""Rooms and peers out of a body."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig, Role
from engine.errors import RequestError
from engine.frontend.bodies import CompletionBody
from engine.frontend.rendezvous import normalise_peer, rooms_of, split_peer
from engine.messages import RoomRef


def config(role: Role, *peers: str) -> EngineConfig:
    return EngineConfig(
        role=role, model="m", served_name="m", instance="i", incarnation="0", port=1, peers=tuple(peers)
    )


def body(host: object = "127.0.0.1", port: object = 8998, room: object = 5) -> CompletionBody:
    return CompletionBody(prompt="", bootstrap_host=host, bootstrap_port=port, bootstrap_room=room)  # type: ignore[arg-type]


DECODE = config(Role.DECODE, "localhost:8998", "10.0.0.7:8999")


def numbers(rooms: list[RoomRef | None]) -> list[int]:
    return [room.room for room in rooms if room is not None]


def test_scalar_room_counts_up() -> None:
    """Room, room + 1, ... on both legs alike."""
    assert numbers(rooms_of(body(), 2, 2, config(Role.PREFILL))) == [5, 6, 7, 8]


def test_list_for_each_sequence_is_taken_as_it_is() -> None:
    """smg writes one entry a sequence for one prompt with n > 1."""
    rooms = rooms_of(body(["127.0.0.1"] * 3, [8998] * 3, [9, 4, 6]), 1, 3, DECODE)
    assert numbers(rooms) == [9, 4, 6]


def test_list_for_each_prompt_counts_up_within_it() -> None:
    """smg writes one entry a prompt when there are several prompts, whatever n is."""
    rooms = rooms_of(body(["127.0.0.1"] * 2, [8998] * 2, [100, 200]), 2, 3, DECODE)
    assert numbers(rooms) == [100, 101, 102, 200, 201, 202]


def test_lists_may_name_different_peers() -> None:
    """Each room keeps the host and port of its own place in the lists, as the configuration writes them."""
    rooms = rooms_of(body(["10.0.0.7", "127.0.0.1"], [8999, 8998], [1, 2]), 2, 1, DECODE)
    assert rooms == [RoomRef("10.0.0.7", 8999, 1), RoomRef("localhost", 8998, 2)]


@pytest.mark.parametrize("entries", [1, 3, 5])
def test_list_of_another_length_is_refused(entries: int) -> None:
    """Neither prompts nor sequences: a 400."""
    with pytest.raises(RequestError, match=f"{entries} entries for 4 sequences"):
        rooms_of(body(room=list(range(entries))), 2, 2, config(Role.PREFILL))


def test_single_peer_needs_no_naming() -> None:
    """A room alone means the only prefill there is; with two of them it is refused."""
    assert rooms_of(body(None, None), 1, 1, config(Role.DECODE, "h:1")) == [RoomRef("h", 1, 5)]
    with pytest.raises(RequestError, match=r"127\.0\.0\.1:8998"):
        rooms_of(body(None, None), 1, 1, DECODE)


def test_unified_ignores_rooms() -> None:
    """A unified instance behind a router serves alone."""
    assert rooms_of(body(), 1, 2, config(Role.UNIFIED)) == [None, None]


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "::1", "[::1]"])
def test_names_of_this_machine_are_one(name: str) -> None:
    """Whatever a router calls loopback is the same peer."""
    assert normalise_peer(name, 5) == "127.0.0.1:5"


@pytest.mark.parametrize("peer", ["", "host", ":1", "host:", "host:x", "host:0", "host:65536", "host:-1"])
def test_peer_must_be_host_and_port(peer: str) -> None:
    """Half a peer is refused."""
    with pytest.raises(ValueError, match="is not host:port"):
        split_peer(peer)
