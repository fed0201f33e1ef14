"""Prefill's NIXL thread: lets readers' READs move, and checksums finished chunks.

Without NIXL's progress thread a READ over TCP moves only while its source polls, so this must not be the
scheduler's loop (invariant 10). It polls every 0.1 ms while a reader is expected to read, every 2 ms while
rooms wait to be read, and every 20 ms when idle (0.5 % of a core).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from engine.clock import Clock
from engine.kvcache.pool import KVPool
from engine.transfer.checksums import page_checksums
from engine.transfer.inbox import Inbox
from engine.transfer.interface import FirstToken
from engine.transfer.nixl_backend import Agent

IDLE_POLL_MS = 20
READING_POLL_MS = 2
HOT_PAUSE_S = 100e-6
HOT_S = 0.2


@dataclass(frozen=True, slots=True)
class Chunk:
    """Computed pages of a prompt, as the loop reported them."""

    rid: str
    first_page: int
    pages: tuple[int, ...]
    first: FirstToken | None


@dataclass(frozen=True, slots=True)
class ChunkSummed:
    """A chunk with its checksums, ready to be offered; `error` when they could not be computed."""

    chunk: Chunk
    checksums: bytes
    error: str = ""

    @property
    def rid(self) -> str:
        return self.chunk.rid


class SourceWorker:
    """Owns prefill's one agent."""

    def __init__(
        self,
        pool: KVPool,
        clock: Clock,
        checksums: bool,
        report: Callable[[ChunkSummed], None],
        stopping: Event,
    ) -> None:
        self.chunks: Inbox[Chunk] = Inbox()
        self.rooms_reading = 0
        """Written by the control thread: how many rooms a reader may be reading."""
        self._pool = pool
        self._clock = clock
        self._checksums = checksums
        self._report = report
        self._stopping = stopping
        self._hot_until = 0.0
        self._agent: Agent | None = None
        self._poller = select.poll()
        self._poller.register(self.chunks.fileno(), select.POLLIN)

    def open(self, agent_name: str) -> bytes:
        """Make the agent and return its metadata; raises TransferError. Called before the thread starts."""
        self._agent = Agent(agent_name, self._pool)
        return self._agent.metadata

    def stir(self) -> None:
        """Poll tightly for a while: a reader is about to read or to connect."""
        self._hot_until = self._clock.monotonic() + HOT_S
        self.chunks.wake()

    def run(self) -> None:
        """Body of the supervised thread."""
        assert self._agent is not None
        while not self._stopping.is_set():
            self._agent.progress()
            self._pause()
            self.chunks.settle()
            while (chunk := self.chunks.take()) is not None:
                self._report(self._sum(chunk))
                self._agent.progress()
        self._agent.drop([])
        self._agent = None

    def _pause(self) -> None:
        if self._clock.monotonic() < self._hot_until:
            time.sleep(HOT_PAUSE_S)
        else:
            self._poller.poll(READING_POLL_MS if self.rooms_reading else IDLE_POLL_MS)

    def _sum(self, chunk: Chunk) -> ChunkSummed:
        if not self._checksums:
            return ChunkSummed(chunk, b"")
        try:
            return ChunkSummed(chunk, page_checksums(self._pool, chunk.pages))
        except Exception as error:
            return ChunkSummed(chunk, b"", f"{type(error).__name__}: {error}")
