"""Who starts and stops targets, behind a seam: the embedded shim, systemd units; others' instances have none here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pdctl.deployment.model import Instance
from pdctl.managers.sight import Sight
from pdctl.recover.drift import Drift
from pdctl.recover.plan import Target


class Manager(Protocol):
    """Sees, stops and starts instances of one deployment. Every call may raise PdctlError."""

    def look(self, name: str) -> Sight:
        """Return what is known of an instance now."""
        ...

    def ask_to_stop(self, name: str) -> None:
        """Send SIGTERM; what is dead is fine."""
        ...

    def await_stopped(self, name: str, deadline_s: float) -> bool:
        """Wait until nothing is left, killing all of it at the deadline; return whether that was needed.

        Raises Unkillable.
        """
        ...

    def start(self, target: Target) -> Sight:
        """Start it; return once its process exists."""
        ...

    def last_words(self, name: str) -> str:
        """Return the end of what it printed, with its place in the first line."""
        ...

    def problems(self, instance: Instance) -> Iterable[str]:
        """Return what would keep it from starting again, were it stopped now."""
        ...

    def drift(self, instance: Instance) -> tuple[Drift, ...]:
        """Return what else a restart would deploy."""
        ...

    def stopped_with(self, name: str) -> tuple[str, ...]:
        """Return the instances that its manager stops along with it."""
        ...
