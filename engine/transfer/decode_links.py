"""Decode's link to one prefill incarnation: looked up, connected, greeted, up; once broken, gone for good."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.transfer.canary_result import CanaryResult
from engine.transfer.channel import DecodeChannel
from engine.transfer.clocks import PeerPulse
from engine.transfer.outbox import Outbox
from engine.transfer.registry import RegistryRecord
from engine.transfer.runs import Place

NO_SOURCE = -1
"""No agent for the prefill's pool: its data plane died, or NIXL fails here. READs fail until the next HELLO."""


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
    source: int = NO_SOURCE
    """Which data-plane process of the prefill we read from."""
    tp: int = 1
    refused: str | None = None
    """Contract fields that differ: the link stays up, its rooms are refused."""
    outbox: Outbox = field(default_factory=Outbox)
    next_beat: float = 0.0
    retry_at: float = 0.0
    error: str = ""
    canary: CanaryResult = field(default_factory=CanaryResult)
    next_canary: float = 0.0

    @property
    def is_working(self) -> bool:
        """Say whether rooms can be read over this link, or are refused for a known reason."""
        return self.phase is LinkPhase.UP and (self.source != NO_SOURCE or self.refused is not None)

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
