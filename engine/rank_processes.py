"""The scheduler processes of an instance, one a rank: started together, and none outlives another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.config import EngineConfig

SCHEDULER = (sys.executable, "-m", "engine.scheduler")
BAD_START = 2
"""Exit code for a configuration or model that cannot work."""


class RankProcesses:
    """Owner of the processes. Each dies with this one (PDEATHSIG, which it sets itself)."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes
        self.forsaken = False
        """Dead ranks are left dead; only a failpoint writes it."""

    @classmethod
    async def start(cls, config: EngineConfig, run_dir: Path, command: Sequence[str] = SCHEDULER) -> RankProcesses:
        """Start `config.tp` processes."""
        return cls([await _start(config, run_dir, command, rank) for rank in range(config.tp)])

    @property
    def pids(self) -> list[int]:
        """Return the process ids by rank."""
        return [process.pid for process in self._processes]

    @property
    def had_bad_start(self) -> bool:
        """A rank has ended because of the configuration or the model, and has said why."""
        return any(process.returncode == BAD_START for process in self._processes)

    async def wait(self) -> str | None:
        """Wait until the instance is over: return why when a rank died, None when rank 0 left as asked."""
        waits = {asyncio.create_task(process.wait()): process for process in self._processes}
        try:
            while waits:
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                ended = [waits.pop(task) for task in done]
                if self.forsaken:
                    continue
                if any(process.returncode for process in ended):
                    return self._endings()
                if self._processes[0] in ended:
                    return None
        finally:
            for task in waits:
                task.cancel()
        return self._endings()

    async def kill(self) -> None:
        """End those that still run."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._processes))

    def _endings(self) -> str:
        return "; ".join(
            f"{self._name(rank)} (pid {process.pid}) {_ending(process.returncode)}"
            for rank, process in enumerate(self._processes)
            if process.returncode
        )

    def _name(self, rank: int) -> str:
        return "the scheduler process" if len(self._processes) == 1 else f"the scheduler process of rank {rank}"


async def _start(config: EngineConfig, run_dir: Path, command: Sequence[str], rank: int) -> Process:
    process = await asyncio.create_subprocess_exec(
        *command,
        "--run-dir",
        str(run_dir),
        "--rank",
        str(rank),
        "--parent",
        str(os.getpid()),
        stdin=asyncio.subprocess.PIPE,
        # Its own group: a Ctrl-C, or SIGTERM to the group, must reach it as Drain, once the door is closed.
        process_group=0,
    )
    assert process.stdin is not None
    # A rank that dies at once is noticed by its exit, not by this pipe.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(msgspec.json.encode(config))
        await process.stdin.drain()
    process.stdin.close()
    return process


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"
