"""Start what is missing of a deployment, and wait until it is well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pdctl import signals
from pdctl.deployment import layout, preflight, readiness, shutdown
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.readiness import Event, Phase, Progress
from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused, UsageError
from pdctl.managers import shim

ORDER = (Role.PREFILL, Role.UNIFIED, Role.DECODE, Role.ROUTER)
INTERRUPT_STOP_S = 5.0
"""Nothing is served yet: there is nothing to drain."""


def bring_up(
    folder: StateFolder,
    deployment: Deployment,
    progress: Progress,
    tell: Callable[[str], None],
    *,
    timeout_s: float,
    is_waiting: bool = True,
    restart: str = "no",
) -> tuple[Instance, ...]:
    """Start what does not run yet and, unless told otherwise, wait until every instance is well.

    `progress` hears of each instance, `tell` of what is undone.
    The caller holds the folder's lock. Returns what this call started; on any failure, Ctrl-C
    included, those are stopped again. Raises PdctlError, NotProven (an instance died or was not well in
    time), Refused (something runs with other settings).
    """
    began = time.monotonic()
    mine = tuple(sorted(_ours(deployment), key=lambda instance: ORDER.index(instance.role)))
    _refuse_other_settings(folder, deployment)
    seen = {instance.name: shim.observe(folder.paths(instance.name)) for instance in mine}
    missing = tuple(i for i in mine if not (seen[i.name].life.has_process or seen[i.name].life.is_supervised))
    # Ranks whose parent died with its shim: they hold ports and memory.
    shutdown.take_down(folder, missing, deadline_s=INTERRUPT_STOP_S)
    preflight.check_engine_extra(missing)
    preflight.check_ports(missing)
    folder.save(deployment)
    for instance in mine:
        if instance not in missing:
            progress(Event(instance.name, Phase.ALREADY, f"pid {seen[instance.name].pid}", 0.0))
    started: list[Instance] = []
    logs_began_at = {instance.name: _size(folder.paths(instance.name).log) for instance in missing}
    with undone_on(BaseException, folder, started, tell):
        for instance in missing:
            started.append(instance)
            pid = _start(folder, instance, restart)
            progress(Event(instance.name, Phase.STARTED, f"pid {pid}", time.monotonic() - began))
        if is_waiting:
            processes = readiness.ShimProcesses(folder, logs_began_at)
            readiness.Wait(processes, progress, began).until_well(mine, timeout_s)
    return missing


@contextmanager
def undone_on(
    kind: type[BaseException], folder: StateFolder, started: Sequence[Instance], tell: Callable[[str], None]
) -> Iterator[None]:
    """Stop what was started if the block is left by an exception of that kind; `tell` names it."""
    try:
        yield
    except kind:
        if not started:
            raise
        names = ", ".join(instance.name for instance in started)
        with signals.ignored():
            with suppress(OSError):  # the terminal may be what is gone
                tell(f"stopping what this call started, so that nothing half started stays: {names}")
            shutdown.take_down(folder, started, deadline_s=INTERRUPT_STOP_S)
        raise


def _ours(deployment: Deployment) -> tuple[Instance, ...]:
    mine = tuple(i for i in deployment.instances if layout.is_local(i) and i.start)
    if not mine:
        raise UsageError(
            f"nothing in {deployment.name!r} is for pdctl to start on this machine",
            'for that it needs manager = "shim", host = "local", and dialect "pdctl" or a `start` command',
        )
    return mine


def _refuse_other_settings(folder: StateFolder, wanted: Deployment) -> None:
    """Raise Refused if an instance runs that is not wanted, or with another command than wanted."""
    kept = folder.load()
    for instance in kept.instances if kept else ():
        seen = shim.observe(folder.paths(instance.name))
        if not seen.life.has_process or seen.record is None:
            continue
        now = next((i for i in wanted.instances if i.name == instance.name), None)
        if now is None or now.start != seen.record.argv:
            what = "is not in what you ask for" if now is None else "runs with other settings than you ask for"
            raise Refused(
                f"{instance.name} (pid {seen.pid}) of {folder.name!r} {what}; nothing was changed",
                f"pdctl down --name {folder.name}   and then `pdctl up` again",
            )


def _start(folder: StateFolder, instance: Instance, restart: str) -> int | None:
    assert instance.start is not None, "only what has a start command is started"
    # An interrupt between the birth of a process and the note of its pid would lose it.
    with signals.held():
        seen = shim.start(
            instance.name,
            instance.start,
            instance.env,
            folder.paths(instance.name),
            cwd=folder.folder,
            restart=restart,
        )
    return seen.pid


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0
