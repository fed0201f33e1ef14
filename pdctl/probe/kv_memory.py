"""No probe into an engine whose KV memory is full: it would queue behind users, or push one of them out."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.collect.http import InstanceClient
from pdctl.deployment.model import Instance
from pdctl.errors import Refused
from pdctl.probe.targets import table_of

FULL = 0.95


def check_room(clients: Sequence[tuple[Instance, InstanceClient]], *, force: bool) -> tuple[str, ...]:
    """Return a note for each instance whose KV use is unknown or, with `force`, too high.

    Raises Refused when one is at or above `FULL` and `force` is not given.
    """
    notes = []
    for instance, client in clients:
        use = kv_use(instance, client)
        if use is None:
            notes.append(f"{instance.name}: KV use not known, probed all the same")
        elif use >= FULL and force:
            notes.append(f"{instance.name}: KV use {use:.0%}, probed because of --force")
        elif use >= FULL:
            raise Refused(
                f"{instance.name} uses {use:.0%} of its KV memory; a probe could displace a user's request",
                "wait until it is below 95 %, or use --force",
            )
    return tuple(notes)


def kv_use(instance: Instance, client: InstanceClient) -> float | None:
    """Return the used share of KV memory (0..1), or None where the instance does not tell."""
    table = table_of(instance)
    if table is None:
        return None
    for place in table.kv_use:
        answer = client.get(place.path)
        use = place.find({place.path: answer.body}) if answer.ok else None
        if use is not None:
            return use
    return None
