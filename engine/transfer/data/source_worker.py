"""A prefill rank's data-plane thread: keeps a data-plane process running and has it checksum finished chunks.

The process may die (see `engine.transfer.data.plane_process`): the chunk in hand is given to the next one, and
`SourceChanged` tells the control thread where readers find the pages now. Rooms live on: their pages never
left the scheduler; only READs that were running fail, on the reader's side.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import TransferError
from engine.kvcache.pool import KVPool
from engine.transfer.data import canary_page
from engine.transfer.data.plane_messages import (
    SLICE_PAGES,
    FromPlane,
    Open,
    Opened,
    Ping,
    PlaneClosed,
    PollTightly,
    Sum,
    Summed,
    Unusable,
    receive_answer,
    send,
)
from engine.transfer.data.source_orders import (
    CanaryFilled,
    Chunk,
    ChunkSummed,
    FillCanary,
    SourceChanged,
    SourceOrder,
    SourceReport,
    Stir,
)
from engine.transfer.inbox import Inbox

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "engine.transfer.data.plane_process")
OPEN_TIMEOUT_S = 30.0
BEAT_S = 1.0
BEATS_UNANSWERED = 5
"""Beats, not seconds: an instance that was stopped as a whole has lost seconds, but no beats."""
BACKOFF_S = (0.0, 0.2, 1.0, 5.0)
NO_PLANE = "the data-plane process died; the next one is starting"
STEADY_S = 10.0
"""A process that lived that long did not die of its start."""


@dataclass(slots=True)
class _Plane:
    """A running data-plane process."""

    child: subprocess.Popen[bytes]
    channel: socket.socket
    started_at: float
    is_open: bool = False
    beats: int = 0
    """Sent since its last word."""


@dataclass(slots=True)
class _InHand:
    chunk: Chunk
    sums: list[bytes] = field(default_factory=list)
    is_asked: bool = False


def source_agent_name(config: EngineConfig, rank: int) -> str:
    """Return the name of a prefill rank's NIXL agent; the number of its process is appended."""
    return f"{config.instance}/{config.incarnation}/{rank}"


class SourceWorker:
    """Owner of the data-plane process."""

    def __init__(
        self,
        pool: KVPool,
        clock: Clock,
        checksums: bool,
        report: Callable[[SourceReport], None],
        stopping: Event,
        beat_s: float = BEAT_S,
    ) -> None:
        self.orders: Inbox[SourceOrder] = Inbox()
        self.restarts = 0
        self._pool = pool
        self._clock = clock
        self._checksums = checksums
        self._report = report
        self._stopping = stopping
        self._beat_s = beat_s
        self._next_beat = 0.0
        self._agent_name = ""
        self._plane: _Plane | None = None
        self._number = 0
        self._deaths_in_a_row = 0
        self._chunks: deque[Chunk] = deque()
        self._in_hand: _InHand | None = None
        self._rooms_reading = 0
        self._is_stirred = False

    @property
    def pid(self) -> int | None:
        """Process id of the data plane, None while there is none."""
        plane = self._plane
        return plane.child.pid if plane is not None and plane.is_open else None

    def open(self, agent_name: str) -> Opened:
        """Start the first process and wait for its agent (1 s). Raises TransferError. Called before the thread."""
        self._agent_name = agent_name
        plane = self._start()
        ready, _, _ = select.select([plane.channel], [], [], OPEN_TIMEOUT_S)
        try:
            answer = receive_answer(plane.channel) if ready else None
        except PlaneClosed:
            answer = None
        if isinstance(answer, Opened):
            plane.is_open = True
            return answer
        self._end(plane)
        raise TransferError(answer.error if isinstance(answer, Unusable) else self._why_silent(plane))

    def run(self) -> None:
        """Body of the supervised thread."""
        while not self._stopping.is_set():
            try:
                self._turn(self._plane or self._restart())
            except PlaneClosed:
                self._died()
        if self._plane is not None:
            self._end(self._plane)

    def _turn(self, plane: _Plane) -> None:
        self._wait(plane)
        self.orders.settle()
        while (order := self.orders.take()) is not None:
            self._obey(order)
        while (answer := receive_answer(plane.channel)) is not None:
            plane.beats = 0
            self._hear(plane, answer)
        self._beat(plane)
        if plane.is_open:
            if self._is_stirred and send(plane.channel, PollTightly(self._rooms_reading)):
                self._is_stirred = False
            self._next_chunk(plane)

    def _wait(self, plane: _Plane) -> None:
        poller = select.poll()
        poller.register(self.orders.fileno(), select.POLLIN)
        poller.register(plane.channel.fileno(), select.POLLIN)
        poller.poll(max(self._next_beat - self._clock.monotonic(), 0) * 1000)

    def _obey(self, order: SourceOrder) -> None:
        match order:
            case Chunk():
                self._chunks.append(order)
            case Stir(rooms_reading):
                self._rooms_reading, self._is_stirred = rooms_reading, True
            case FillCanary(page, nonce):
                canary_page.fill(self._pool, page, nonce)
                self._report(CanaryFilled(nonce))

    def _hear(self, plane: _Plane, answer: FromPlane) -> None:
        match answer:
            case Opened(metadata, address):
                plane.is_open = True
                self._report(SourceChanged(self._number, metadata, address))
                if self._in_hand is not None:
                    self._in_hand.is_asked = False
            case Summed(checksums, error) if self._in_hand is not None:
                self._summed(plane, self._in_hand, checksums, error)
            case Unusable(error):
                log.error("no data plane: %s", error)

    def _next_chunk(self, plane: _Plane) -> None:
        if self._in_hand is not None and not self._in_hand.is_asked:
            self._ask(plane, self._in_hand)
        while self._in_hand is None and self._chunks:
            chunk = self._chunks.popleft()
            if self._checksums:
                self._in_hand = _InHand(chunk)
                self._ask(plane, self._in_hand)
            else:
                self._report(ChunkSummed(chunk, b""))

    def _ask(self, plane: _Plane, hand: _InHand) -> None:
        done = len(hand.sums) * SLICE_PAGES
        hand.is_asked = send(plane.channel, Sum(list(hand.chunk.pages[done : done + SLICE_PAGES])))

    def _summed(self, plane: _Plane, hand: _InHand, checksums: bytes, error: str) -> None:
        hand.sums.append(checksums)
        if not error and len(hand.sums) * SLICE_PAGES < len(hand.chunk.pages):
            self._ask(plane, hand)
            return
        self._in_hand = None
        self._report(ChunkSummed(hand.chunk, b"".join(hand.sums), error))

    def _beat(self, plane: _Plane) -> None:
        """Ask whether the process lives; kill one that hangs, which looks like any other death."""
        now = self._clock.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + self._beat_s
        limit = BEATS_UNANSWERED if plane.is_open else OPEN_TIMEOUT_S / self._beat_s
        if plane.beats >= limit:
            log.error("the data-plane process %d does not answer: killing it", plane.child.pid)
            plane.child.kill()
            raise PlaneClosed
        plane.beats += 1
        send(plane.channel, Ping())

    # -- the process -----------------------------------------------------------------------------------------

    def _start(self) -> _Plane:
        if self._pool.descriptor is None:
            raise TransferError("the KV pool is in GPU memory, which a data-plane process cannot map yet")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inherited = (theirs.fileno(), self._pool.descriptor)
        with theirs:
            child = subprocess.Popen(
                [*COMMAND, *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                env={"UCX_HANDLE_ERRORS": "none", **os.environ},
            )
        self._number += 1
        self._plane = _Plane(child, ours, self._clock.monotonic())
        send(ours, Open(f"{self._agent_name}/{self._number}", self._pool.layout))
        return self._plane

    def _restart(self) -> _Plane:
        pause = BACKOFF_S[min(self._deaths_in_a_row, len(BACKOFF_S)) - 1] if self._deaths_in_a_row else 0.0
        self._stopping.wait(pause)
        return self._start()

    def _died(self) -> None:
        plane = self._plane
        if plane is None:
            return
        self._end(plane)
        code = plane.child.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit {code}"
        log.error("the data-plane process %d died (%s): running READs fail, starting another", plane.child.pid, how)
        lived_s = self._clock.monotonic() - plane.started_at
        self._deaths_in_a_row = 1 if lived_s > STEADY_S else self._deaths_in_a_row + 1
        self.restarts += 1
        self._report(SourceChanged(self._number))

    def _end(self, plane: _Plane) -> None:
        """Close the channel, on which the process leaves; it is killed where it does not by itself."""
        self._plane = None
        plane.channel.close()
        try:
            plane.child.wait(1.0)
        except subprocess.TimeoutExpired:
            plane.child.kill()
            plane.child.wait()

    def _why_silent(self, plane: _Plane) -> str:
        return f"the data-plane process ended with {plane.child.returncode} before it had a NIXL agent; see its log"
