"""The ways that a request can go, each as a deployment of its own, so that each can be probed alone."""

from __future__ import annotations

import msgspec

from pdctl.deployment.model import Deployment, Instance, Role


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way. `via` is what the probe's results call it."""

    via: str
    deployment: Deployment
    direct: bool
    names: frozenset[str]
    """Instances that every request on it passes."""


def ways_of(deployment: Deployment) -> tuple[Way, ...]:
    """Return the way through the router, each pair, and without a router each engine that serves alone."""
    router = deployment.router
    through = (
        (Way(via="router", deployment=deployment, direct=False, names=frozenset({router.name})),) if router else ()
    )
    pairs = (_alone(deployment, f"{pair[0].name} -> {pair[1].name}", *pair, direct=True) for pair in deployment.pairs)
    unified = () if router else deployment.of_role(Role.UNIFIED)
    return (*through, *pairs, *(_alone(deployment, one.name, one, direct=False) for one in unified))


def _alone(deployment: Deployment, via: str, *instances: Instance, direct: bool) -> Way:
    return Way(
        via=via,
        deployment=msgspec.structs.replace(deployment, instances=instances),
        direct=direct,
        names=frozenset(instance.name for instance in instances),
    )
