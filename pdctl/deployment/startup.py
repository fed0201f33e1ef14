"""Start what is missing of a deployment, and wait until it is well."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from pdctl.collect import liveness
from pdctl.deployment import layout, preflight, shutdown
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import NotProven, Refused, UsageError
from pdctl.managers import log_files, shim

ORDER = (Role.PREFILL, Role.UNIFIED, Role.DECODE, Role.ROUTER)
ASK_TIMEOUT_S = 2.0
POLL_S = 0.2
LOG_LINES_SHOWN = 20
INTERRUPT_STOP_S = 5.0
"""Nothing is served yet: there is nothing to drain."""


class Phase(StrEnum):
    ALREADY = "already running"
    STARTED = "started"
    WAITING = "waiting"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Event:
    """News about one instance, for whoever shows progress."""

    instance: str
    phase: Phase
    detail: str
    elapsed_s: float
    """Since `bring_up` began."""


Progress = Callable[[Event], None]


def bring_up(
    folder: StateFolder,
    deployment: Deployment,
    progress: Progress,
    *,
    timeout_s: float,
    is_waiting: bool = True,
    restart: str = "no",
) -> tuple[Instance, ...]:
    """Start what does not run yet and, unless told otherwise, wait until every instance is well.

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
    with undone_on(BaseException, folder, started):
        for instance in missing:
            started.append(instance)
            pid = _start(folder, instance, restart)
            progress(Event(instance.name, Phase.STARTED, f"pid {pid}", time.monotonic() - began))
        if is_waiting:
            _await_well(folder, mine, progress, began, timeout_s)
    return missing


@contextmanager
def undone_on(kind: type[BaseException], folder: StateFolder, started: Sequence[Instance]) -> Iterator[None]:
    """Stop what was started if the block is left by an exception of that kind."""
    try:
        yield
    except kind:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it
        try:
            shutdown.take_down(folder, started, deadline_s=INTERRUPT_STOP_S)
        finally:
            signal.signal(signal.SIGINT, before)
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
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        seen = shim.start(
            instance.name,
            instance.start,
            instance.env,
            folder.paths(instance.name),
            cwd=folder.folder,
            restart=restart,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return seen.pid


def _await_well(
    folder: StateFolder, instances: tuple[Instance, ...], progress: Progress, began: float, timeout_s: float
) -> None:
    waiting = {instance.name: instance for instance in instances}
    problems: dict[str, str] = {}
    while True:
        answers = liveness.ask_all(waiting.values(), ASK_TIMEOUT_S, with_loads=False)
        elapsed_s = time.monotonic() - began
        for name, answer in answers.items():
            if answer.problem is None:
                progress(Event(name, Phase.READY, "", elapsed_s))
                del waiting[name]
            else:
                progress(Event(name, Phase.WAITING, answer.problem, elapsed_s))
                problems[name] = answer.problem
        for instance in waiting.values():
            _raise_if_dead(folder, instance)
        if not waiting:
            return
        if elapsed_s >= timeout_s:
            raise _late(folder, waiting, problems, timeout_s)
        time.sleep(POLL_S)


def _raise_if_dead(folder: StateFolder, instance: Instance) -> None:
    seen = shim.observe(folder.paths(instance.name))
    if seen.life.has_process or seen.life.is_supervised:
        return
    raise NotProven(f"{instance.name} {seen.explanation()} while it started", _log_excerpt(folder, instance))


def _late(folder: StateFolder, waiting: dict[str, Instance], problems: dict[str, str], timeout_s: float) -> NotProven:
    states = ", ".join(f"{name} ({problems[name]})" for name in waiting)
    return NotProven(
        f"not well after {timeout_s:g} s: {states}",
        "a longer --timeout may help\n" + "\n".join(_log_excerpt(folder, i) for i in waiting.values()),
    )


def _log_excerpt(folder: StateFolder, instance: Instance) -> str:
    log = folder.paths(instance.name).log
    lines = log_files.last_lines(log, LOG_LINES_SHOWN) or ["(it printed nothing)"]
    return "\n".join([f"the end of {log}:", *(f"    {line}" for line in lines)])
