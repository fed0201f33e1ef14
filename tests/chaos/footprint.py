"""What an engine takes of its machine, before and after events that it outlived: nothing may grow with their number."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from tests.chaos.events import processes_of
from tests.serving.rig import Pair, Process

SAMPLES, PAUSE_S = 5, 0.1
SPARE = {"descriptors": 12, "threads": 4, "children": 0, "rss_mb": 24.0}
"""What comes and goes with the load: connections of its clients, a data plane that is being replaced, heap in use."""
PER_EVENT = {"descriptors": 0.2, "threads": 0.1, "children": 0.0, "rss_mb": 0.2}
"""A leak is one for each event; this is far below."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """An instance's processes together."""

    descriptors: int
    threads: int
    children: int
    rss_mb: float

    @classmethod
    def of(cls, side: Process) -> Footprint:
        """Look several times and take the least of each: what a request in flight needs is no growth."""
        looks = []
        for _ in range(SAMPLES):
            looks.append(_look(side))
            time.sleep(PAUSE_S)
        return cls(*(min(values) for values in zip(*looks, strict=True)))


def _look(side: Process) -> tuple[int, int, int, float]:
    descriptors = threads = count = rss = 0
    for process in processes_of(side):
        try:
            with process.oneshot():
                descriptors += process.num_fds()
                threads += process.num_threads()
                rss += process.memory_info().rss
            count += 1
        except psutil.NoSuchProcess:  # A data plane that was just replaced.
            continue
    return descriptors, threads, count - 1, rss / 1e6


@dataclass(slots=True)
class Life:
    """One process of a side, from the first event that it outlived to the last one."""

    side: str
    first: Footprint
    last: Footprint
    events: int = 0

    @property
    def grown(self) -> list[str]:
        """What grew by more than comes and goes."""
        return [
            what
            for what, spare in SPARE.items()
            if getattr(self.last, what) - getattr(self.first, what) > spare + PER_EVENT[what] * self.events
        ]

    def row(self) -> str:
        """Return a row of the table."""
        cells = [f"{getattr(self.first, what):.0f} -> {getattr(self.last, what):.0f}" for what in SPARE]
        return f"| {self.side} | {self.events} | {' | '.join(cells)} | {', '.join(self.grown) or 'none'} |"


@dataclass(slots=True)
class Lives:
    """All processes that outlived events in a run."""

    sides: Pair
    _lives: dict[int, Life] = field(default_factory=dict)
    """By process id of the API process."""

    def note(self) -> None:
        """Look at both sides after an event. A side that was just started begins with this look."""
        for name, side in (("prefill", self.sides.prefill), ("decode", self.sides.decode)):
            seen = Footprint.of(side)
            life = self._lives.setdefault(side.pid, Life(name, seen, seen, events=-1))
            life.last = seen
            life.events += 1

    def outlived(self) -> Iterator[Life]:
        """Yield those that outlived an event, the longest lives first."""
        yield from sorted((life for life in self._lives.values() if life.events), key=lambda life: -life.events)
