"""One prefill and one decode for a whole module: rooms are told apart by their ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from engine.transfer.interface import Paired
from tests.engine.transfer.transfer_sides import PROMPT, Decode, Prefill, Registry

_numbers = count(1)


@dataclass
class Pair:
    """Both sides in this process, with real NIXL and ZeroMQ between them."""

    registry: Registry
    prefill: Prefill
    decode: Decode

    def stop(self) -> None:
        self.decode.stop()
        self.prefill.stop()
        self.registry.stop()


def make_pair(**changes: object) -> Pair:
    registry = Registry()
    prefill = Prefill(**changes)  # type: ignore[arg-type]
    registry.publish(prefill)
    return Pair(registry, prefill, Decode(registry.address, **changes))  # type: ignore[arg-type]


def pair_up(pair: Pair, rid: str, room: int) -> None:
    """Have both sides ask for a room of `PROMPT`, and wait until it is paired."""
    pair.prefill.announce(rid, room, PROMPT)
    pair.decode.open(rid, room, PROMPT)
    pair.prefill.await_event(Paired, rid)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    made = make_pair()
    yield made
    made.stop()


@pytest.fixture
def hasty_pair() -> Iterator[Pair]:
    """A pair whose pairing and stuck clocks run out within half a second."""
    made = make_pair(pairing_timeout_s=0.4, stuck_timeout_s=0.4)
    yield made
    made.stop()


@pytest.fixture
def room() -> int:
    """A room number that no other test uses."""
    return next(_numbers)


@pytest.fixture
def rid(room: int) -> str:
    return f"r{room}"
