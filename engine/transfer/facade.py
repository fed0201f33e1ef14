"""What `PrefillSource` and `DecodeReader` share: commands go to a queue, events come from another."""

from __future__ import annotations

import hashlib
from array import array
from threading import Event as ThreadEvent
from typing import Any

from engine.observe.records import Sample
from engine.observe.threads import Supervisor
from engine.transfer.control.loop import ControlLoop
from engine.transfer.interface import Event

STOP_TIMEOUT_S = 3.0


def prompt_hash(prompt_ids: list[int]) -> bytes:
    """Return a 16-byte hash of token ids; equal exactly when the lists are."""
    return hashlib.blake2b(array("q", prompt_ids).tobytes(), digest_size=16).digest()


class TransferFacade:
    """The methods of `engine.transfer.interface.Transfer` that do not depend on the side."""

    threads: tuple[str, ...] = ()

    def __init__(self, control: ControlLoop[Any], supervisor: Supervisor, stopping: ThreadEvent) -> None:
        self._base = control
        self._supervisor = supervisor
        self._stopping = stopping

    @property
    def wakeup_fd(self) -> int:
        """Return a descriptor that is readable while events wait, for the loop's poller."""
        return self._base.events.fileno()

    def poll(self) -> list[Event]:
        """Return the events since the last call; never blocks."""
        return self._base.events.take_all()

    def progress(self, loop_tick: int, longest_step_s: float) -> None:
        """Tell the heartbeats where the loop is."""
        self._base.loop_position = (loop_tick, longest_step_s)

    def refused_peers(self) -> dict[str, str]:
        """Return peers refused by the contract, with fields and values."""
        return dict(self._base.refused)

    def drain(self) -> None:
        """Refuse new rooms from now on; those that are paired finish."""
        self._base.draining = True

    def stop(self) -> None:
        """Say GOODBYE, drop the agents, close the sockets (up to 3 s). Threads end with the supervisor."""
        self._stopping.set()
        self._base.inbox.wake()
        if self._supervisor.states():
            self._base.closed.wait(STOP_TIMEOUT_S)

    def problems(self) -> list[str]:
        """Return which threads of this package are down."""
        return self._supervisor.problems(self.threads)

    def _start_thread(self, name: str, body: Any) -> None:
        """Start a supervised thread whose body ends at `stop`, though the supervisor may go on longer."""

        def until_supervisor_stops() -> None:
            body()
            self._supervisor.stopping.wait()

        self._supervisor.start(name, until_supervisor_stops)

    def _samples(self, states: list[str]) -> list[Sample]:
        found = self._base.counters.samples()
        for state in sorted(set(states)):
            found.append(Sample("rooms", states.count(state), {"state": state}))
        return found
