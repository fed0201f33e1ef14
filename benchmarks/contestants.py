"""Engines that a benchmark compares: each started as a process, asked for the same tokens, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx
import psutil

START_LIMIT_S = 600.0
"""vLLM needs 30 s on an idle machine, and ten minutes on one whose two cores have a queue of fifteen."""
ANSWER_LIMIT_S = 600.0
MB = 1_000_000

Times = list[list[float]]
"""Of each request, when each piece of its answer came, in seconds since all were sent."""


class Unavailable(Exception):
    """A contestant that is not installed, or does not start; the text says why."""


class Contestant(Protocol):
    """One engine. `name` says dtype and version where these matter."""

    name: str

    def start(self) -> None:
        """Start it and wait until it answers. Raises Unavailable."""

    def run(self, prompts: list[list[int]], tokens: int) -> Times:
        """Generate `tokens` greedy tokens for each prompt at once, past every end token."""

    def memory_mb(self) -> float:
        """Return the proportional resident memory of its processes: what two of them share counts once."""

    def processes(self) -> list[psutil.Process]:
        """Return all of its processes."""

    def stop(self) -> None:
        """End it; harmless when it never started."""


@dataclass
class _Child:
    """A process group with its log: what both kinds of contestants are."""

    name: str
    argv: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    pipes: bool = field(default=False, init=False)
    child: subprocess.Popen[str] | None = field(default=None, init=False)

    def spawn(self) -> subprocess.Popen[str]:
        """Start the process in a group of its own. Raises Unavailable."""
        pipe = subprocess.PIPE if self.pipes else subprocess.DEVNULL
        with self.log.open("ab") as log:
            try:
                self.child = subprocess.Popen(
                    self.argv,
                    stdin=pipe,
                    stdout=pipe if self.pipes else log,
                    stderr=log,
                    text=True,
                    env={**os.environ, **self.environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise Unavailable(f"{self.argv[0]} cannot be run: {error}") from error
        return self.child

    def ended(self) -> Unavailable:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return Unavailable(f"ended or silent at its start; {self.log}: {lines[-1] if lines else 'no output'}")

    def processes(self) -> list[psutil.Process]:
        if self.child is None:
            return []
        parent = psutil.Process(self.child.pid)
        return [parent, *parent.children(recursive=True)]

    def memory_mb(self) -> float:
        return sum(process.memory_full_info().pss for process in self.processes()) / MB

    def stop(self) -> None:
        if self.child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


@dataclass
class Server(_Child):
    """An OpenAI-compatible server, asked over HTTP by `/v1/completions`."""

    url: str = field(kw_only=True)
    model: str = field(kw_only=True)

    def start(self) -> None:
        child = self.spawn()
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end and child.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", timeout=2, trust_env=False).status_code == 200:
                    return
            time.sleep(0.2)
        self.stop()
        raise self.ended()

    def run(self, prompts: list[list[int]], tokens: int) -> Times:
        return asyncio.run(self._run(prompts, tokens))

    async def _run(self, prompts: list[list[int]], tokens: int) -> Times:
        async with httpx.AsyncClient(timeout=ANSWER_LIMIT_S, trust_env=False) as client:
            started = time.perf_counter()
            return list(await asyncio.gather(*(self._one(client, ids, tokens, started) for ids in prompts)))

    async def _one(self, client: httpx.AsyncClient, ids: list[int], tokens: int, started: float) -> list[float]:
        body = {
            "model": self.model,
            "prompt": ids,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        async with client.stream("POST", f"{self.url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            pieces = (line async for line in answer.aiter_lines() if line.startswith("data: {"))
            return [time.perf_counter() - started async for _ in pieces]


@dataclass
class Worker(_Child):
    """A program of `benchmarks/peers`: prompts and times as lines of JSON."""

    pipes: bool = field(default=True, init=False)

    def start(self) -> None:
        self.spawn()
        try:
            self._answer()
        except Unavailable:
            self.stop()
            raise

    def run(self, prompts: list[list[int]], tokens: int) -> Times:
        assert self.child is not None
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens}) + "\n")
        self.child.stdin.flush()
        times: Times = self._answer()["times"]
        return times

    def _answer(self) -> dict[str, Times]:
        assert self.child is not None
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise self.ended()
        answer: dict[str, Times] = json.loads(line)
        return answer
