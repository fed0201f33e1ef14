"""Decode's link to one prefill incarnation: looked up, connected, greeted, up; once broken, gone for good."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.transfer.control.canary import CanaryResult
from engine.transfer.control.channel import DecodeChannel
from engine.transfer.control.registry import RegistryRecord
from engine.transfer.protocol.clocks import PeerPulse
from engine.transfer.protocol.frames import RankPool
from engine.transfer.protocol.head_runs import HeadRun
from engine.transfer.protocol.outbox import Outbox

NO_SOURCE = -1
"""A lane could get no agent: a data plane of the prefill died, or NIXL fails here. The next heartbeat asks anew."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What one rank of ours reads from one rank of the prefill; see `engine.transfer.data.read_orders`."""

    key: str
    """No other lane of this process has it."""
    heads: HeadRun


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
    ranks: list[RankPool] = field(default_factory=list)
    """The prefill's pools, from its last HELLO."""
    lanes: tuple[Lane, ...] = ()
    """Empty before the first HELLO, and where the contract refuses."""
    source: int = NO_SOURCE
    """Which HELLO of the prefill we read by."""
    opened: dict[str, int] = field(default_factory=dict)
    """Lane -> which data-plane process of its source rank an agent was ordered for."""
    agents: dict[str, bool] = field(default_factory=dict)
    """Lane -> whether the last attempt to make its agent succeeded; none has ended for those that are not there."""
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
        has_agents = all(self.agents.get(lane.key, False) for lane in self.lanes)
        return self.phase is LinkPhase.UP and (has_agents or self.refused is not None)

    @property
    def incarnation(self) -> str:
        """Return the prefill's incarnation, empty before the lookup."""
        return self.record.incarnation if self.record else ""

    @property
    def instance(self) -> str:
        """Return the prefill's name, or its bootstrap address before the lookup."""
        return self.record.instance if self.record else self.bootstrap

    @property
    def pages(self) -> int:
        """Return how many pages the prefill's pools have, 0 before its HELLO."""
        return self.ranks[0].geometry.pages if self.ranks else 0

    def lane(self, key: str) -> Lane | None:
        """Return the lane of that key."""
        return next((lane for lane in self.lanes if lane.key == key), None)

    @property
    def key(self) -> str:
        """Return a name that no other link of this process has."""
        return f"{self.bootstrap}#{self.number}"
