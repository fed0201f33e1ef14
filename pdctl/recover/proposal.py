"""What is shown before anything is done, and what the operator may answer."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdctl.deployment.model import Deployment
from pdctl.diagnose.report import Report
from pdctl.recover.drift import Drift
from pdctl.recover.gates import Decision
from pdctl.recover.ledger import InstanceState
from pdctl.recover.restart_set import RestartSet


class Choice(StrEnum):
    SNAPSHOT = "snapshot and restart"
    RESTART = "restart now"
    QUIT = "quit"


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One restart that could be done."""

    deployment: Deployment
    chosen: RestartSet
    decision: Decision
    before: tuple[InstanceState, ...]
    drift: tuple[Drift, ...]
    predicted_s: float | None
    """Outage: the longest of their last start-to-ready times; None: no start is on record."""
    drain_s: float
    """For requests in flight, then it is killed."""
    snapshot_s: float | None
    """What a snapshot would add; None: none is possible."""
    report: Report | None = None
    abort_first: tuple[str, ...] = ()
    """Engines whose requests are ended before anything is restarted, as that may be enough."""

    def lost(self) -> tuple[str, ...]:
        """Return what the restart costs."""
        rows = [row for row in self.before if row.name in self.chosen.names]
        requests = sum((row.running or 0) + (row.waiting or 0) for row in rows)
        known = any(row.running is not None for row in rows)
        count = f"{requests} requests in flight" if known else "the requests in flight (their number is not known)"
        return count, "prefix caches and KV memory of " + ", ".join(self.chosen.names)

    def stays(self) -> tuple[str, ...]:
        """Return the instances that are not touched."""
        return tuple(item.name for item in self.deployment.instances if item.name not in self.chosen.names)
