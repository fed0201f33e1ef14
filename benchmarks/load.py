"""What every benchmark says of the machine, and where it finds the model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import psutil
import torch

from tests.conftest import smollm2_candidate


def describe_machine() -> None:
    """Print cores and how busy others keep them: a figure means little without."""
    busy = psutil.cpu_percent(interval=1.0) / 100 * (os.cpu_count() or 1)
    cpu = torch.backends.cpu.get_cpu_capability()
    print(f"machine: {os.cpu_count()} cores ({cpu}), {busy:.2f} of them busy with other work before the start")


def model_path() -> str:
    """Return the path of SmolLM2's GGUF, or end with a message."""
    path = smollm2_candidate()
    if not path.is_file():
        raise SystemExit(f"SmolLM2 is not at {path}: run `make model`")
    return str(path)


class OtherLoad:
    """What a block of work costs its processes, and how busy others keep the machine meanwhile."""

    def __init__(self, processes: Sequence[psutil.Process]) -> None:
        """`processes`: those that are measured, besides this one."""
        self._processes = [*processes, psutil.Process()]
        self.cores = 0.0
        """Cores that other processes used, on average."""
        self.own_s = 0.0
        """CPU seconds of the measured processes, this one included."""

    def __enter__(self) -> OtherLoad:
        self._start = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        (wall, busy, own), (ended, busy_then, own_then) = self._start, self._now()
        self.own_s = own_then - own
        self.cores = max(0.0, (busy_then - busy - self.own_s) / (ended - wall))

    def _now(self) -> tuple[float, float, float]:
        machine = psutil.cpu_times()
        busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0) - getattr(machine, "guest", 0.0)
        own = sum(sum(process.cpu_times()[:2]) for process in self._processes)
        return time.perf_counter(), busy, own
