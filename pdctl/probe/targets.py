"""Where requests are sent: through the router, or to each prefill x decode pair."""

from __future__ import annotations

import msgspec

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.dialects import catalogue
from pdctl.dialects.family import Ask, Capability, Dialect, Kind, Pairing, Support
from pdctl.errors import CannotTell, UsageError
from pdctl.probe.pair_lock import Pair

MOST_PAIR_LOCKS = 64
"""A probe through the router may land on any pair and locks them all; above this many it locks the router."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One way for a request to go."""

    via: str
    entry: Instance
    """Gets the request; with a pair, prefill gets it too."""
    pair: tuple[Instance, Instance] | None = None
    """Set without a router."""
    engines: tuple[Instance, ...]
    """Those that may take part."""
    ask: Ask
    pairing: Pairing
    abort_safe: bool
    """Whether a connection may be closed before its end."""
    abort_source: str
    """What says so."""
    locks: tuple[Pair, ...]

    def of_role(self, role: Role) -> tuple[Instance, ...]:
        """Return the engines of a role."""
        return tuple(engine for engine in self.engines if engine.role == role)


def plan(deployment: Deployment, *, direct: bool) -> tuple[Target, ...]:
    """Return the targets of a probe.

    Raises UsageError where the deployment has no such way, CannotTell where pdctl does not know the engines.
    """
    if direct:
        if not deployment.pairs:
            raise UsageError(
                f"deployment {deployment.name} has no pair of prefill and decode for --direct",
                "name both roles in its file, or leave --direct out",
            )
        return tuple(_pair(prefill, decode) for prefill, decode in deployment.pairs)
    if deployment.router is not None:
        return (_through(deployment, deployment.router),)
    alone = deployment.of_role(Role.UNIFIED)
    if not alone:
        raise UsageError(f"deployment {deployment.name} has no router", "add it to the file, or use --direct")
    return tuple(_single(instance) for instance in alone)


def table_of(instance: Instance) -> Dialect | None:
    """Return the dialect table of an instance."""
    kind = Kind.ROUTER if instance.role is Role.ROUTER else Kind.ENGINE
    return catalogue.family(instance.dialect, kind)


def _through(deployment: Deployment, router: Instance) -> Target:
    engines = tuple(item for item in deployment.instances if item.role is not Role.ROUTER)
    pairs = tuple((prefill.url, decode.url) for prefill, decode in deployment.pairs)
    tables = [table_of(engine) for engine in engines]
    is_native = bool(tables) and all(table is not None and table.ask is Ask.GENERATE for table in tables)
    safe, source = _abort_safety(engines)
    return Target(
        via="router",
        entry=router,
        engines=engines,
        ask=Ask.GENERATE if is_native else Ask.CHAT,
        pairing=Pairing.NONE,
        abort_safe=safe,
        abort_source=source,
        locks=pairs if 0 < len(pairs) <= MOST_PAIR_LOCKS else ((router.url, router.url),),
    )


def _pair(prefill: Instance, decode: Instance) -> Target:
    table = table_of(decode)
    via = f"{prefill.name} -> {decode.name}"
    if table is None or table.pairing is Pairing.NONE or prefill.dialect != decode.dialect:
        raise CannotTell(
            f"pdctl cannot send a request to {via} without a router "
            f"({prefill.dialect} and {decode.dialect} take none that way)",
            "probe through the router instead",
        )
    if table.pairing is Pairing.ROOM and prefill.bootstrap_port is None:
        raise UsageError(
            f"{prefill.name} has no bootstrap_port, which decode has to be told",
            "add bootstrap_port to its table in the deployment file",
        )
    safe, source = _abort_safety((prefill, decode))
    return Target(
        via=via,
        entry=decode,
        pair=(prefill, decode),
        engines=(prefill, decode),
        ask=table.ask,
        pairing=table.pairing,
        abort_safe=safe,
        abort_source=source,
        locks=((prefill.url, decode.url),),
    )


def _single(instance: Instance) -> Target:
    table = table_of(instance)
    safe, source = _abort_safety((instance,))
    return Target(
        via=instance.name,
        entry=instance,
        engines=(instance,),
        ask=table.ask if table is not None else Ask.CHAT,
        pairing=Pairing.NONE,
        abort_safe=safe,
        abort_source=source,
        locks=((instance.url, instance.url),),
    )


def _abort_safety(engines: tuple[Instance, ...]) -> tuple[bool, str]:
    """Return whether every engine survives a client that leaves; unknown counts as no, as does no engine."""
    if not engines:
        return False, "the engines behind the router are not known"
    for engine in engines:
        support, source = catalogue.capability(
            engine.dialect, Kind.ENGINE, Capability.ABORT_SAFE, engine.version, engine.transfer
        )
        if support is not Support.YES:
            return (
                False,
                f"{engine.name} ({engine.dialect} {engine.version or 'of unknown version'}): {source}",
            )
    return True, "every engine survives a client that leaves"
