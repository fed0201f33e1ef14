"""How the instances stand, for the before/after table; and which of them served a request just now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from pdctl.deployment import overview
from pdctl.deployment.model import Deployment, Role
from pdctl.deployment.state import StateFolder
from pdctl.diagnose.report import PairState
from pdctl.errors import PdctlError
from pdctl.hosts.hosts import Hosts
from pdctl.probe import Verdict, prove
from pdctl.recover.ledger import InstanceState, Recovery, Step

LOOK_TIMEOUT_S = 2.0
HEALTH_PROBE_S = 10.0
SURE_PROBE_S = 5.0
"""Enough where an established cause already calls for a restart: service stands while the answer is waited for."""


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
    """Who serves and who does not. Who is in neither was not asked, or is known to fail some requests."""

    healthy: frozenset[str] = frozenset()
    """A direct request passed."""
    silent: frozenset[str] = frozenset()
    """None gets through any of its pairs."""


def ask(deployment: Deployment, seen: Iterable[PairState], timeout_s: float, say: Callable[[str], None]) -> Asked:
    """Find out who serves: who passes a direct request now; /health counts for nothing.

    Pairs that the diagnosis has seen stalled or failing are not asked again. Sends one request to each other pair,
    and to each engine that serves alone.
    """
    states: dict[tuple[str, ...], str] = {(pair.prefill, pair.decode): pair.state for pair in seen}
    healthy: set[str] = set()
    silent: set[str] = set()
    unknown: set[str] = set()
    alone = ((one,) for one in deployment.of_role(Role.UNIFIED))
    for way in (*deployment.pairs, *alone):
        names = tuple(one.name for one in way)
        state = states.get(names)
        if state == "stalled":
            answer = silent
        elif state == "failing":
            # Half of the requests or more fail; others may not.
            answer = unknown
        else:
            only = msgspec.structs.replace(deployment, instances=way)
            try:
                proof = prove(only, direct=len(way) > 1, timeout_s=timeout_s, progress=say)
                answer = healthy if proof.verdict is Verdict.PROVEN else silent
            except PdctlError as error:
                say(f"{' -> '.join(names)}: not probed: {error.message}")
                answer = unknown
        answer |= set(names)
    return Asked(frozenset(healthy), frozenset(silent - healthy - unknown))


def last_healthy(deployment: Deployment, names: Iterable[str], healthy: frozenset[str]) -> tuple[str, ...]:
    """Return targets that serve requests, where none of their role outside the set does."""
    names = set(names)
    found = []
    for role in (Role.PREFILL, Role.DECODE, Role.UNIFIED):
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
