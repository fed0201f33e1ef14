"""A prefill and a decode of one process that meet over loopback."""

from __future__ import annotations

from dataclasses import dataclass

from engine.transfer.interface import Paired
from tests.engine.transfer.transfer_sides import PROMPT, Decode, Prefill, Registry


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
