"""Decode's link to one prefill incarnation: looked up, connected, greeted, up; once broken, gone for good."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.transfer.channel import DecodeChannel
from engine.transfer.clocks import PeerPulse
from engine.transfer.outbox import Outbox
from engine.transfer.registry import RegistryRecord
from engine.transfer.runs import Place


class LinkPhase(StrEnum):
    LOOKING_UP = "looking_up"
    CONNECTING = "connecting"
    """Until the prefill's HELLO came."""
    UP = "up"
    DOWN = "down"
    """Waiting for the next attempt."""


@dataclass(slots=True)
class Link:
    """One attempt to reach, or one connection to, the prefill behind a bootstrap address."""

    bootstrap: str
    number: int
    pulse: PeerPulse
    phase: LinkPhase = LinkPhase.LOOKING_UP
    record: RegistryRecord | None = None
    channel: DecodeChannel | None = None
    place: Place | None = None
    """The prefill's pool, from its HELLO."""
    source: int = 0
    """Which data-plane process of the prefill we read from."""
    tp: int = 1
    refused: str | None = None
    """Contract fields that differ: the link stays up, its rooms are refused."""
    outbox: Outbox = field(default_factory=Outbox)
    next_beat: float = 0.0
    retry_at: float = 0.0
    error: str = ""

    @property
    def incarnation(self) -> str:
        """Return the prefill's incarnation, empty before the lookup."""
        return self.record.incarnation if self.record else ""

    @property
    def instance(self) -> str:
        """Return the prefill's name, or its bootstrap address before the lookup."""
        return self.record.instance if self.record else self.bootstrap

    @property
    def key(self) -> str:
        """Return a name that no other link of this process has."""
        return f"{self.bootstrap}#{self.number}"
