"""Which instances must be restarted together: the subject of the cause, closed under the capability table.

A peer that would not survive the restart of another joins the set. Unknown counts as no.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.survival import victims
from pdctl.diagnose.catalogue import Action, code_of
from pdctl.diagnose.report import Report
from pdctl.errors import UsageError
from pdctl.recover.blame import initiating_restarts

KEPT_BY_PEERS = ("PD0307",)
"""One side was restarted alone, and that is the trouble: the old state, which must go, is its peers'."""

StoppedWith = Callable[[str], Iterable[str]]
"""The instances that a manager stops along with one, whether they would survive or not."""


class Joined(msgspec.Struct, frozen=True):
    """An instance that joins the set, and why."""

    name: str
    because: str


class RestartSet(msgspec.Struct, frozen=True):
    """Names in the order of the deployment; `joined` are those that nobody named."""

    names: tuple[str, ...]
    joined: tuple[Joined, ...]


def seeds(deployment: Deployment, report: Report) -> tuple[str, ...]:
    """Return the subjects of the causes; every engine where no cause calls for a restart.

    Two causes of their own have two subjects. Restarting both sides is what cures a wedge of unknown cause.
    """
    known = {instance.name for instance in deployment.instances}
    named: list[str] = []
    for cause in initiating_restarts(report):
        if code_of(cause.code).action is Action.RESTART_ROUTER:
            named += [router.name for router in deployment.of_role(Role.ROUTER)[:1]]
        else:
            named += [name for name in (*cause.affected, cause.subject.instance) if name in known]
        if cause.code in KEPT_BY_PEERS:
            named += [peer.name for pair in affected_pairs(deployment, named) for peer in pair]
    return tuple(dict.fromkeys(named)) or engines(deployment)


def engines(deployment: Deployment) -> tuple[str, ...]:
    """Return every engine, but no router."""
    return tuple(instance.name for instance in deployment.instances if instance.role is not Role.ROUTER)


def closed(
    deployment: Deployment, names: Iterable[str], stopped_with: StoppedWith, *, with_victims: bool = True
) -> RestartSet:
    """Add every peer that would be stopped along, and (`with_victims`) every one that would not survive.

    Raises UsageError for an unknown name.
    """
    by_name = {instance.name: instance for instance in deployment.instances}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise UsageError(f"{deployment.name!r} has no instance {unknown[0]!r}", f"there are {', '.join(by_name)}")
    chosen = list(dict.fromkeys(names))
    joined: list[Joined] = []
    for name in chosen:  # grows while it is walked
        found = [(other, f"its unit is stopped along with that of {name}") for other in stopped_with(name)]
        if with_victims:
            found += [
                (peer.name, f"it may not survive the restart of {name}: {source}")
                for peer, source in victims(deployment, by_name[name])
            ]
        for other, because in found:
            if other not in chosen:
                chosen.append(other)
                joined.append(Joined(other, because))
    ordered = tuple(instance.name for instance in deployment.instances if instance.name in chosen)
    return RestartSet(ordered, tuple(joined))


def affected_pairs(deployment: Deployment, names: Iterable[str]) -> tuple[tuple[Instance, Instance], ...]:
    """Return every pair that one of the instances is part of."""
    touched = set(names)
    return tuple(pair for pair in deployment.pairs if touched & {pair[0].name, pair[1].name})
