"""Stop the instances of a deployment, and make sure that nothing of them is left."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdctl.deployment.model import Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.managers import shim

ORDER = (Role.ROUTER, Role.DECODE, Role.UNIFIED, Role.PREFILL)
"""Of asking: no new requests first. Engines finish what they have, and need no order for it."""
ROUTER_S = 1.0
"""What a router gets whose engines are all gone: it has nothing to finish, but smg keeps its port open for 5 s, so that
load balancers notice."""


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
    """Ask all instances to stop, await the engines, then the router; what does not run is fine.

    Takes at most `deadline_s` plus a few seconds an instance. Raises PdctlError if a process survives SIGKILL.
    """
    instances = sorted(instances, key=lambda one: ORDER.index(one.role))
    paths = {instance.name: folder.paths(instance.name) for instance in instances}
    before = {name: (shim.observe(path), bool(shim.leftovers(path))) for name, path in paths.items()}
    for path in paths.values():
        shim.ask_to_stop(path)
    ends_at = time.monotonic() + deadline_s
    killed: dict[str, bool] = {}
    for instance in sorted(instances, key=lambda one: one.role is Role.ROUTER):
        left_s = max(0.0, ends_at - time.monotonic())
        is_idle = left_s > ROUTER_S and _has_lost_its_engines(instance, instances)
        was_killed = shim.await_stopped(paths[instance.name], ROUTER_S if is_idle else left_s)
        killed[instance.name] = was_killed and not is_idle
    return tuple(Stopped(name, seen.explanation(), ran, killed[name]) for name, (seen, ran) in before.items())


def _has_lost_its_engines(instance: Instance, stopped: Sequence[Instance]) -> bool:
    """Return whether it is a router, and every engine that it was told of is among the stopped."""
    told = {word for word in instance.start or () if word.startswith(("http://", "https://"))}
    return instance.role is Role.ROUTER and bool(told) and told <= {one.url for one in stopped}
