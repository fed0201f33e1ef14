"""How the instances stand, for the before/after table; and which of them served a request just now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from pdctl.deployment import overview
from pdctl.deployment.model import Deployment, Role
from pdctl.deployment.state import StateFolder
from pdctl.diagnose.report import Report
from pdctl.errors import PdctlError
from pdctl.hosts.hosts import Hosts
from pdctl.probe import Verdict, prove
from pdctl.recover.ledger import InstanceState, Recovery, Step
from pdctl.recover.restart_set import affected_pairs

LOOK_TIMEOUT_S = 2.0
HEALTH_PROBE_S = 10.0
SURE_PROBE_S = 5.0
"""Enough where an established cause already calls for a restart: service stands while the answer is waited for."""
_STANDS = ("stalled", "failing")


def take(folder: StateFolder, deployment: Deployment, hosts: Hosts) -> tuple[InstanceState, ...]:
    """Look at every instance; takes at most 2 s even if all hang."""
    seen = overview.take(folder, deployment, LOOK_TIMEOUT_S, hosts=hosts)
    return tuple(
        InstanceState(
            name=row.name,
            process=row.process,
            health=row.health,
            pid=row.pid,
            running=row.running,
            waiting=row.waiting,
            oldest_s=row.oldest_s,
        )
        for row in seen.instances
    )


class Asked(NamedTuple):
    """Engines that were asked by a direct request. Who is in neither was not asked."""

    healthy: frozenset[str] = frozenset()
    """At least one request passed."""
    silent: frozenset[str] = frozenset()
    """None did."""


def ask(deployment: Deployment, report: Report | None, timeout_s: float, say: Callable[[str], None]) -> Asked:
    """Find out who serves: who passes a direct request now; /health counts for nothing.

    Pairs that the diagnosis found standing are not asked again. Sends one request to each other pair.
    """
    standing = {(p.prefill, p.decode) for p in report.impact.pairs if p.state in _STANDS} if report else set()
    healthy: set[str] = set()
    asked: set[str] = set()
    for prefill, decode in affected_pairs(deployment, (i.name for i in deployment.instances)):
        pair = {prefill.name, decode.name}
        if (prefill.name, decode.name) not in standing:
            alone = msgspec.structs.replace(deployment, instances=(prefill, decode))
            try:
                if prove(alone, direct=True, timeout_s=timeout_s, progress=say).verdict is Verdict.PROVEN:
                    healthy |= pair
            except PdctlError as error:
                say(f"{prefill.name} -> {decode.name}: not probed: {error.message}")
                continue
        asked |= pair
    return Asked(frozenset(healthy), frozenset(asked - healthy))


def last_healthy(deployment: Deployment, names: Iterable[str], healthy: frozenset[str]) -> tuple[str, ...]:
    """Return targets that serve requests, where none of their role outside the set does."""
    names = set(names)
    found = []
    for role in (Role.PREFILL, Role.DECODE):
        of_role = {instance.name for instance in deployment.of_role(role)} & healthy
        if of_role and of_role <= names:
            found += sorted(of_role)
    return tuple(found)


def start_to_ready_s(history: Sequence[Recovery], names: Iterable[str]) -> float | None:
    """Return the longest of the last known start-to-ready times, None where one is not known."""
    longest = 0.0
    for name in names:
        entries = (item.last(Step.READY, name) for item in reversed(history))
        last = next((entry for entry in entries if entry is not None and entry.took_s is not None), None)
        if last is None or last.took_s is None:
            return None
        longest = max(longest, last.took_s)
    return longest
