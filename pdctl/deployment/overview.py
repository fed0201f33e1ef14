"""One line of truth for each instance: its process as the system sees it, its health as it answers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from pdctl.collect import liveness
from pdctl.deployment import sights
from pdctl.deployment.model import Deployment, Instance
from pdctl.deployment.state import StateFolder
from pdctl.hosts.hosts import Hosts
from pdctl.managers.sight import Sight


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


def take(
    folder: StateFolder,
    deployment: Deployment,
    timeout_s: float,
    *,
    hosts: Hosts,
    now: float | None = None,
) -> Overview:
    """Look at every instance, all at once; takes at most `timeout_s` even if all of them hang."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        looking = pool.submit(sights.of, folder, deployment.instances, hosts, timeout_s)
        answers = liveness.ask_all(deployment.instances, timeout_s, hosts=hosts)
        seen = looking.result()
    now = time.time() if now is None else now
    rows = tuple(_status(i, answers[i.name], seen.get(i.name), now) for i in deployment.instances)
    is_well = bool(rows) and all(row.is_well for row in rows)
    return Overview(deployment=deployment.name, model=deployment.model, is_well=is_well, instances=rows)


def _status(instance: Instance, answer: liveness.Answer, seen: Sight | None, now: float) -> InstanceStatus:
    loads = answer.loads
    is_gone = seen is not None and seen.is_known and not seen.is_running
    owner = f"unit {instance.unit}" if instance.manager == "systemd" else "pdctl"
    return InstanceStatus(
        name=instance.name,
        role=instance.role.value,
        url=instance.url,
        is_well=answer.is_well and not is_gone,
        process=seen.words if seen else "not managed here",
        pid=seen.pid if seen else None,
        age_s=now - seen.started_at if seen and seen.started_at is not None else None,
        restarts=seen.restarts if seen else 0,
        health=f"answered by a process that {owner} did not start"
        if is_gone and answer.is_well
        else answer.problem or "ok",
        health_ms=answer.took_ms,
        running=loads.running if loads else None,
        waiting=loads.waiting if loads else None,
        oldest_s=loads.oldest_s if loads else None,
    )
