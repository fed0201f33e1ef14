"""Stop the instances of a deployment, and make sure that nothing of them is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.deployment.model import Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.managers import shim

ORDER = (Role.ROUTER, Role.DECODE, Role.UNIFIED, Role.PREFILL)
"""No new requests first; then who reads; last who is read from."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of one instance."""

    instance: str
    was: str
    """Its life before, in words."""
    was_running: bool
    was_killed: bool
    """It did not leave by itself within the deadline."""


def take_down(
    folder: StateFolder, instances: Iterable[Instance], *, deadline_s: float = shim.STOP_DEADLINE_S
) -> tuple[Stopped, ...]:
    """Stop instances role after role, those of one role together; what does not run is fine.

    Takes at most `deadline_s` a role plus a few seconds. Raises PdctlError if a process survives SIGKILL.
    """
    instances = tuple(instances)
    outcome: list[Stopped] = []
    for role in ORDER:
        group = [instance for instance in instances if instance.role is role]
        paths = {instance.name: folder.paths(instance.name) for instance in group}
        before = {name: (shim.observe(path), bool(shim.leftovers(path))) for name, path in paths.items()}
        for path in paths.values():
            shim.ask_to_stop(path)
        for name, path in paths.items():
            seen, was_running = before[name]
            was_killed = shim.await_stopped(path, deadline_s)
            outcome.append(Stopped(name, seen.explanation(), was_running, was_killed))
    return tuple(outcome)
