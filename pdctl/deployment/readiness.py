"""Wait until instances that were started are well; tell at once when one died instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pdctl.collect import liveness
from pdctl.deployment.model import Instance
from pdctl.deployment.state import StateFolder
from pdctl.errors import NotProven
from pdctl.hosts.hosts import Hosts
from pdctl.managers import log_files, shim
from pdctl.managers.shim import Life

ASK_TIMEOUT_S = 2.0
POLL_S = 0.2
DEATHS = 3
"""What is started again by itself and has ended so often will not come up either."""
LOG_LINES_SHOWN = 20


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


class Processes(Protocol):
    """Who knows of the processes that are waited for."""

    def death(self, name: str) -> str | None:
        """Return how an instance ended, None while it lives or may yet."""
        ...

    def last_words(self, name: str) -> str:
        """Return the end of what it printed, with its place in the first line."""
        ...


@dataclass(frozen=True, slots=True)
class ShimProcesses:
    """Processes of the embedded manager."""

    folder: StateFolder
    logs_began_at: Mapping[str, int]
    """Size of each log in bytes when it was started: what is before belongs to earlier runs."""

    def death(self, name: str) -> str | None:
        """Return what state file and /proc say."""
        seen = shim.observe(self.folder.paths(name))
        if name in self.logs_began_at and seen.life is Life.BACKING_OFF and seen.record:
            deaths = seen.record.restarts + 1
            return f"ended {deaths} times" if deaths >= DEATHS else None
        return None if seen.life.has_process or seen.life.is_supervised else seen.explanation()

    def last_words(self, name: str) -> str:
        """Return the end of its log."""
        log = self.folder.paths(name).log
        lines = log_files.last_lines(log, LOG_LINES_SHOWN, after_byte=self.logs_began_at.get(name, 0))
        shown = lines or ["(it printed nothing)"]
        return "\n".join([f"the end of {log}:", *(f"    {line}" for line in shown)])


@dataclass(frozen=True, slots=True)
class Wait:
    """What the waiting needs to know."""

    processes: Processes
    progress: Progress
    began: float
    """`time.monotonic()` when the start began."""
    hosts: Hosts | None = None
    """Through which what listens on the loopback of another host is asked."""

    def until_well(self, instances: tuple[Instance, ...], timeout_s: float) -> None:
        """Return when all are well. Raises NotProven with the end of the log if one dies or is late."""
        waiting = {instance.name: instance for instance in instances}
        while True:
            answers = liveness.ask_all(waiting.values(), ASK_TIMEOUT_S, with_loads=False, hosts=self.hosts)
            problems = self._report(answers)
            waiting = {name: waiting[name] for name in problems}
            for instance in waiting.values():
                self._raise_if_dead(instance)
            if not waiting:
                return
            if time.monotonic() - self.began >= timeout_s:
                raise self._late(problems, timeout_s)
            time.sleep(POLL_S)

    def _report(self, answers: Mapping[str, liveness.Answer]) -> dict[str, str]:
        """Tell the progress, and return the problem of each instance that has one."""
        elapsed_s = time.monotonic() - self.began
        problems: dict[str, str] = {}
        for name, answer in answers.items():
            if answer.problem is None:
                self.progress(Event(name, Phase.READY, "", elapsed_s))
            else:
                self.progress(Event(name, Phase.WAITING, answer.problem, elapsed_s))
                problems[name] = answer.problem
        return problems

    def _raise_if_dead(self, instance: Instance) -> None:
        death = self.processes.death(instance.name)
        if death is not None:
            raise NotProven(f"{instance.name} {death} while it started", self.processes.last_words(instance.name))

    def _late(self, problems: Mapping[str, str], timeout_s: float) -> NotProven:
        states = ", ".join(f"{name} ({problem})" for name, problem in problems.items())
        excerpts = "\n".join(self.processes.last_words(name) for name in problems)
        return NotProven(f"not well after {timeout_s:g} s: {states}", f"a longer --timeout may help\n{excerpts}")
