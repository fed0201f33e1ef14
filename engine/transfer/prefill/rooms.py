"""Prefill's rooms and peers, and what the source's facade tells its control thread about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.observe.records import RoomRecord
from engine.transfer.interface import FailReason
from engine.transfer.protocol.clocks import PeerPulse
from engine.transfer.protocol.frames import Hello, Offer
from engine.transfer.protocol.outbox import Outbox
from engine.transfer.protocol.rooms import PrefillState


@dataclass(frozen=True, slots=True)
class Leg:
    """From the loop: the HTTP leg of a room."""

    rid: str
    room: int
    prompt_tokens: int
    prompt_hash: bytes
    record: RoomRecord

    def difference(self, offer: Offer) -> str | None:
        """Say how the offered prompt differs from this one, or None."""
        if offer.prompt_tokens != self.prompt_tokens:
            return f"the prompt has {self.prompt_tokens} tokens on prefill, {offer.prompt_tokens} on decode"
        if offer.prompt_hash != self.prompt_hash:
            return f"the {self.prompt_tokens} token ids differ between prefill and decode (two tokenizers?)"
        return None


@dataclass(frozen=True, slots=True)
class FailLeg:
    """From the loop: end a room."""

    rid: str
    reason: FailReason
    detail: str


@dataclass(slots=True)
class DecodePeer:
    """One decode incarnation on one connection."""

    routing_id: bytes
    incarnation: str
    hello: Hello
    pulse: PeerPulse
    refused: str | None = None
    outbox: Outbox = field(default_factory=Outbox)
    next_beat: float = 0.0

    @property
    def instance(self) -> str:
        return self.hello.instance


@dataclass(slots=True)
class PrefillRoom:
    """One transfer out of this instance's pages. `peer` is bound by the OFFER and never rebound."""

    number: int
    state: PrefillState = PrefillState.ABSENT
    leg: Leg | None = None
    offer: Offer | None = None
    peer: DecodePeer | None = None
    deadline: float = float("inf")
    sums: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """First page of a chunk -> rank -> its checksums, until every rank has sent them."""
    reason: FailReason | None = None
    detail: str = ""
