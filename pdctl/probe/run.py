"""What one run of probes has in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pdctl.collect.http import InstanceClient
from pdctl.deployment.model import Instance
from pdctl.probe.targets import Target

Progress = Callable[[str], None]
"""Told what is being done, one line each; goes to stderr."""

RECORDS_WAIT_S = 2.0
"""How long the records of an answered request may take to say its end."""
RECORDS_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """Settings of a run, and a client for each engine (by name)."""

    prompt_tokens: int
    timeout_s: float
    progress: Progress
    clients: dict[str, InstanceClient]
    wall: Callable[[], float] = field(default=time.time)
    pause: Callable[[float], None] = field(default=time.sleep)

    def clients_of(self, engines: tuple[Instance, ...]) -> tuple[tuple[Instance, InstanceClient], ...]:
        """Return the engines with their clients."""
        return tuple((engine, self.clients[engine.name]) for engine in engines)

    def on_left(self, target: Target) -> Callable[[tuple[int, ...]], None]:
        """Return what to say of connections that are kept open."""

        def say(pids: tuple[int, ...]) -> None:
            numbers = ", ".join(str(pid) for pid in pids)
            self.progress(
                f"{target.via}: not closing the connection, because a client that leaves may do harm "
                f"({target.abort_source}); process {numbers} keeps it open until the engine ends it"
            )

        return say
