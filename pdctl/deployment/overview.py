"""One line of truth for each instance: its process as the system sees it, its health as it answers."""

from __future__ import annotations

import time

import msgspec

from pdctl.collect import liveness
from pdctl.deployment import layout
from pdctl.deployment.model import Deployment, Instance
from pdctl.deployment.state import StateFolder
from pdctl.managers import shim


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Absent is unknown: of an instance that others manage, pdctl sees no process."""

    name: str
    role: str
    url: str
    is_well: bool
    process: str
    """In words, e.g. `running`, `killed by SIGKILL`, `not managed here`."""
    pid: int | None = None
    age_s: float | None = None
    restarts: int = 0
    health: str
    """`ok`, or what is wrong."""
    health_ms: float
    running: int | None = None
    waiting: int | None = None
    oldest_s: float | None = None
    """Age of the oldest request in any queue."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment at one moment."""

    deployment: str
    model: str
    is_well: bool
    instances: tuple[InstanceStatus, ...]


def take(folder: StateFolder, deployment: Deployment, timeout_s: float, *, now: float | None = None) -> Overview:
    """Look at every instance, all at once; takes at most `timeout_s` even if all of them hang."""
    answers = liveness.ask_all(deployment.instances, timeout_s)
    now = time.time() if now is None else now
    rows = tuple(_status(folder, i, answers[i.name], now) for i in deployment.instances)
    is_well = bool(rows) and all(row.is_well for row in rows)
    return Overview(deployment=deployment.name, model=deployment.model, is_well=is_well, instances=rows)


def _status(folder: StateFolder, instance: Instance, answer: liveness.Answer, now: float) -> InstanceStatus:
    loads = answer.loads
    seen = shim.observe(folder.paths(instance.name)) if layout.is_local(instance) else None
    started_at = seen.record.started_at if seen and seen.pid and seen.record else None
    is_foreign = seen is not None and not seen.life.has_process and answer.is_well
    return InstanceStatus(
        name=instance.name,
        role=instance.role.value,
        url=instance.url,
        is_well=answer.is_well and (seen is None or seen.life.has_process),
        process=seen.explanation() if seen else "not managed here",
        pid=seen.pid if seen else None,
        age_s=now - started_at if started_at is not None else None,
        restarts=seen.record.restarts if seen and seen.record else 0,
        health="answered by a process that pdctl did not start" if is_foreign else answer.problem or "ok",
        health_ms=answer.took_ms,
        running=loads.running if loads else None,
        waiting=loads.waiting if loads else None,
        oldest_s=loads.oldest_s if loads else None,
    )
