"""The control thread's frame: one loop that owns sockets, rooms and clocks, and cannot wedge or die quietly.

A turn: wait for a socket, an inbox item or the next tick; then frames, then inbox, then clocks. Frames come
before the clocks, so that a process that was stopped itself first reads what waited for it before it calls a
peer silent; links that its peers gave up meanwhile are left before the inbox, so that nothing new is begun on
them. Everything a turn needs is kept on the object: after a crash the supervisor calls `run` again and it goes
on. Whatever was in hand fails its room, because a lost command would leave a request waiting for ever.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Event as ThreadEvent
from typing import Generic, TypeVar

import zmq

from engine.clock import Clock
from engine.config import EngineConfig
from engine.kvcache.layout import KVLayout
from engine.observe.journal import Journal
from engine.transfer.control.control_key import ControlKey
from engine.transfer.control.counters import TransferCounters
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.inbox import Inbox
from engine.transfer.interface import Event, FailReason
from engine.transfer.protocol.clocks import HEARTBEAT_S, OWN_PAUSE_S, PeerPulse
from engine.transfer.protocol.contract import pools_of
from engine.transfer.protocol.frames import End, Envelope, Frame, Heartbeat, Hello, Refused, encode, kind_of

log = logging.getLogger(__name__)

TICK_MS = 100
RANK = 0

Item = TypeVar("Item")


class ControlLoop(ABC, Generic[Item]):
    """What prefill's and decode's control threads share."""

    def __init__(
        self,
        config: EngineConfig,
        contract: dict[str, str],
        layout: KVLayout,
        ranks: InstanceRanks,
        clock: Clock,
        journal: Journal,
        stopping: ThreadEvent,
    ) -> None:
        self.inbox: Inbox[Item] = Inbox()
        self.events: Inbox[Event] = Inbox()
        self.counters = TransferCounters()
        self.refused: dict[str, str] = {}
        """Peers refused by the contract: instance -> fields and values."""
        self.ranks = pools_of(layout, ranks.kv_heads)
        self.source_number = 0
        """Counts the changes of prefill's data-plane processes: decode asks anew when it changes."""
        self.draining = False
        self.loop_position = (-1, 0.0)
        """(tick, longest step in seconds) of the scheduler loop, one tuple so that it is replaced at once."""
        self.closed = ThreadEvent()
        self.config = config
        self.key = ControlKey.of(config.control_key)
        self.contract = contract
        self.page_size = layout.page_size
        self.clock = clock
        self.journal = journal
        self._stopping = stopping
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._next_tick = clock.monotonic()

    def run(self) -> None:
        """Body of the supervised thread."""
        while not self._stopping.is_set():
            self._turn()
        if not self.closed.is_set():
            self._leave()
            self._context.term()
            self.closed.set()

    @abstractmethod
    def _sockets(self) -> list[zmq.Socket[bytes]]:
        """Return the sockets to wait for."""

    @abstractmethod
    def _pulses(self) -> list[PeerPulse]:
        """Return the pulses of all peers."""

    @abstractmethod
    def _receive(self) -> None:
        """Handle every frame that is here."""

    @abstractmethod
    def _obey(self, item: Item) -> None:
        """Handle one inbox item."""

    @abstractmethod
    def _abandon(self, item: Item, detail: str) -> None:
        """Fail the room of an item whose handling crashed."""

    @abstractmethod
    def _tick(self, now: float) -> None:
        """Heartbeats, repeats, clocks."""

    @abstractmethod
    def _given_up(self, detail: str) -> None:
        """Act on a silence of our own for which every peer has forgotten us, before anything new is begun."""

    @abstractmethod
    def _leave(self) -> None:
        """Say GOODBYE and close the sockets."""

    def _turn(self) -> None:
        poller = zmq.Poller()
        poller.register(self.inbox.fileno(), zmq.POLLIN)
        for socket in self._sockets():
            poller.register(socket, zmq.POLLIN)
        remaining_ms = (self._next_tick - self.clock.monotonic()) * 1000
        poller.poll(math.ceil(min(max(remaining_ms, 0), TICK_MS)))
        self._receive()
        # The clocks are judged by this time too: a stop from here on is the next turn's to notice.
        now = self.clock.monotonic()
        self._notice_own_pause(now)
        self.inbox.settle()
        while (item := self.inbox.take()) is not None:
            self._guarded(self._obey, item, self._abandon)
        if now >= self._next_tick:
            self._next_tick = now + TICK_MS / 1000
            self._tick(now)

    def _notice_own_pause(self, now: float) -> None:
        paused_s = now - self._next_tick
        if paused_s <= OWN_PAUSE_S:
            return
        self._next_tick = now
        for pulse in self._pulses():
            pulse.forgive(paused_s)
        if paused_s > self.config.silence_timeout_s - HEARTBEAT_S:
            self._given_up(f"this process did not run for {paused_s:.1f} s")

    def _guarded(self, handle: Callable[[Item], None], item: Item, abandon: Callable[[Item, str], None]) -> None:
        try:
            handle(item)
        except Exception as error:
            detail = f"the control thread crashed on it: {type(error).__name__}: {error}"
            try:
                abandon(item, detail)
            except Exception:
                log.exception("could not abandon the room of %r", item)
            raise

    def envelope(self, peer_incarnation: str, frame: Frame) -> bytes:
        self.counters.frames[kind_of(frame), "out"] += 1
        return encode(Envelope(self.config.incarnation, peer_incarnation, RANK, frame))

    def hello(self) -> Hello:
        return Hello(self.config.instance, str(self.config.role), self.contract, self.ranks, self.source_number)

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(*self.loop_position, self.source_number)


def reason_of_end(end: End) -> FailReason:
    """Return why the peer ended a room; a word that is none of ours is a plain abort."""
    try:
        reason = FailReason(end.reason)
    except ValueError:
        return FailReason.ABORTED
    if isinstance(end, Refused) and reason is not FailReason.CONTRACT_MISMATCH:
        return FailReason.PEER_REFUSED
    return reason
