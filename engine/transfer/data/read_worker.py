"""A decode rank's NIXL thread: posts READs, polls and verifies them, and fences (invariant 3).

A *lane* is what this rank reads from one rank of one prefill incarnation: a run of heads, by an agent of its own. Only
this thread touches agents, so dropping one is enough to
know that no byte can arrive any more. Its state outlives the thread body: after a crash the next body goes on
with it.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from engine.clock import Clock
from engine.errors import TransferError
from engine.kvcache.layout import PageMemory
from engine.transfer.data.checksums import differing_page, page_checksums
from engine.transfer.data.nixl_backend import Agent, Read, ReadState
from engine.transfer.data.read_orders import (
    ClosePeer,
    FenceRoom,
    OpenPeer,
    Order,
    PagesSummed,
    PeerOpened,
    PeerUnusable,
    PostRead,
    ReadFinished,
    Report,
    RoomFenced,
    SumPages,
)
from engine.transfer.data.runs import Place, descriptors, merge
from engine.transfer.inbox import Inbox
from engine.transfer.interface import FailReason

log = logging.getLogger(__name__)

FENCE_WAIT_S = 1.0
IDLE_WAIT_MS = 100
POLL_PAUSE_S = 50e-6
STALLED_AFTER_S = 0.1
STALLED_PAUSE_S = 1e-3


@dataclass(slots=True)
class _Running:
    order: PostRead
    read: Read
    posted_at: float


@dataclass(slots=True)
class _Peer:
    opened: OpenPeer
    agent: Agent
    remote: str
    generation: int = 0
    running: dict[tuple[str, int], _Running] = field(default_factory=dict)
    fences: dict[str, float] = field(default_factory=dict)
    """Room -> time at which waiting for its READs ends."""
    failed: set[str] = field(default_factory=set)
    """Rooms with a READ that ended in an error on this agent."""


class ReadWorker:
    """Owns decode's agents. `orders` comes from the control thread, `report` goes back to it."""

    def __init__(
        self,
        pool: PageMemory,
        clock: Clock,
        report: Callable[[Report], None],
        stopping: Event,
        make_agent: Callable[[str, PageMemory], Agent] = Agent,
    ) -> None:
        self.orders: Inbox[Order] = Inbox()
        self.agents_dropped = 0
        self._pool = pool
        self._here = Place(pool.address, pool.layout)
        self._clock = clock
        self._report = report
        self._stopping = stopping
        self._make_agent = make_agent
        self._peers: dict[str, _Peer] = {}
        self._in_hand: Order | None = None
        self._poller = select.poll()
        self._poller.register(self.orders.fileno(), select.POLLIN)

    def run(self) -> None:
        """Body of the supervised thread."""
        self._resume()
        while not self._stopping.is_set():
            self._pause()
            self.turn()
        for lane in list(self._peers):
            self._close(lane)

    def turn(self) -> None:
        """Carry out the orders that wait, then look at every READ and fence once."""
        self.orders.settle()
        while (order := self.orders.take()) is not None:
            self._in_hand = order
            self._obey(order)
            self._in_hand = None
        for peer in list(self._peers.values()):
            self._poll(peer)
            self._fence(peer)

    def _resume(self) -> None:
        """Answer for the order that a crash interrupted: a lost one would leave its room waiting for ever."""
        order, self._in_hand = self._in_hand, None
        if isinstance(order, PostRead):
            self._finish(order, 0.0, FailReason.READ_FAILED, "the read thread crashed while posting it")
        elif order is not None:
            self._obey(order)

    def _pause(self) -> None:
        posted = [running.posted_at for peer in self._peers.values() for running in peer.running.values()]
        if not posted:
            fencing = any(peer.fences for peer in self._peers.values())
            self._poller.poll(1 if fencing else IDLE_WAIT_MS)
        elif not len(self.orders):
            stalled = self._clock.monotonic() - min(posted) > STALLED_AFTER_S
            time.sleep(STALLED_PAUSE_S if stalled else POLL_PAUSE_S)

    def _obey(self, order: Order) -> None:
        match order:
            case OpenPeer():
                self._connect(order)
            case ClosePeer():
                self._close(order.lane)
            case PostRead():
                self._post(order)
            case FenceRoom():
                peer = self._peers.get(order.lane)
                if peer is None:
                    self._report(RoomFenced(order.lane, order.rid))
                else:
                    peer.fences[order.rid] = self._clock.monotonic() + FENCE_WAIT_S
            case SumPages():
                self._report(PagesSummed(order.rid, order.rank, page_checksums(self._pool, order.pages)))

    def _connect(self, opened: OpenPeer, generation: int = 0) -> None:
        """Read from this source by a new agent; READs that ran on an older one begin again."""
        old = self._peers.pop(opened.lane, None)
        again = [] if old is None else self._settle(old)
        try:
            agent, remote = self._new_agent(opened, generation)
        except TransferError as error:
            for order in again:
                self._finish(order, 0.0, FailReason.READ_FAILED, str(error))
            self._report(PeerUnusable(opened.lane, str(error)))
            return
        self._peers[opened.lane] = _Peer(opened, agent, remote, generation)
        self._report(PeerOpened(opened.lane))
        for order in again:
            self._post(order)

    def _new_agent(self, order: OpenPeer, generation: int) -> tuple[Agent, str]:
        agent = self._make_agent(f"{order.agent_name}/{generation}", self._pool)
        try:
            return agent, agent.add_peer(order.metadata)
        except TransferError:
            agent.drop([])
            raise

    def _close(self, lane: str) -> None:
        peer = self._peers.pop(lane, None)
        if peer is not None:
            for order in self._settle(peer):
                self._finish(order, 0.0, FailReason.PEER_GONE, "the link was closed")

    def _settle(self, peer: _Peer) -> list[PostRead]:
        """Drop an agent: not a byte of its READs can arrive any more. Return those of rooms that go on."""
        self.agents_dropped += 1
        peer.agent.drop([running.read for running in peer.running.values()])
        for rid in peer.fences:
            self._report(RoomFenced(peer.opened.lane, rid))
        return [running.order for (rid, _), running in peer.running.items() if rid not in peer.fences]

    def _post(self, order: PostRead) -> None:
        peer = self._peers.get(order.lane)
        if peer is None:
            self._finish(order, 0.0, FailReason.READ_FAILED, "no agent for this lane")
            return
        runs = merge(order.source_pages, order.target_pages)
        here, there = descriptors(peer.opened.place, self._here, runs, peer.opened.heads)
        started = self._clock.monotonic()
        read = peer.agent.read(peer.remote, here, there)
        peer.running[order.rid, order.index] = _Running(order, read, started)
        self._poll(peer)

    def _poll(self, peer: _Peer) -> None:
        for key, running in list(peer.running.items()):
            state = peer.agent.poll(running.read)
            if state is ReadState.RUNNING:
                continue
            seconds = self._clock.monotonic() - running.posted_at
            del peer.running[key]
            peer.agent.release(running.read)
            if state is ReadState.ERROR:
                peer.failed.add(running.order.rid)
                self._finish(running.order, seconds, FailReason.READ_FAILED, running.read.error or "ERR")
            elif running.order.rid not in peer.fences:
                self._verify(running.order, seconds)

    def _verify(self, order: PostRead, seconds: float) -> None:
        heads = self._heads(order)
        try:
            page = differing_page(self._pool, order.target_pages, order.checksums, heads) if order.checksums else None
        except MemoryError:  # Unreported, its room would wait for the request's own deadline.
            self._finish(order, seconds, FailReason.READ_FAILED, "no memory to verify the checksums")
            return
        if page is None:
            self._finish(order, seconds)
            return
        detail = f"page {order.index + page} of the prompt differs from what prefill computed"
        self._finish(order, seconds, FailReason.CHECKSUM_MISMATCH, detail)

    def _heads(self, order: PostRead) -> range:
        """Return the places in this pool that an order's READ writes."""
        peer = self._peers.get(order.lane)
        return range(0) if peer is None else peer.opened.heads.in_reader

    def _finish(self, order: PostRead, seconds: float, reason: FailReason | None = None, detail: str = "") -> None:
        layout = self._pool.layout
        size = len(order.target_pages) * len(self._heads(order)) * layout.page_bytes // layout.kv_heads
        self._report(ReadFinished(order.lane, order.rid, order.index, size, seconds, reason, detail))

    def _fence(self, peer: _Peer) -> None:
        """Report rooms whose READs are all DONE; an agent with others is dropped, which settles them.

        A READ that failed counts as unfinished: NIXL does not say that all of its descriptors are settled.
        """
        now = self._clock.monotonic()
        running = {rid for rid, _ in peer.running}
        for rid, until in list(peer.fences.items()):
            if rid in running and now < until:
                continue
            if rid in running or rid in peer.failed:
                log.warning("dropping NIXL agent %s: unfinished reads of a failed room", peer.agent.name)
                self._connect(peer.opened, peer.generation + 1)
                return
            del peer.fences[rid]
            self._report(RoomFenced(peer.opened.lane, rid))
