"""Decode's side of the transfer: `engine.transfer.interface.Reader`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from threading import Event as ThreadEvent

from engine.clock import Clock
from engine.config import EngineConfig
from engine.kvcache.pool import KVPool
from engine.observe.journal import Journal
from engine.observe.records import PeerTransfer, RoomRecord, Sample
from engine.observe.threads import Supervisor
from engine.observe.watchdog import end_process_soon
from engine.transfer.control.registry import Resolver
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.data.read_worker import ReadWorker
from engine.transfer.decode.canary import CanaryReader
from engine.transfer.decode.control import DecodeControl
from engine.transfer.decode.links import LinkPhase
from engine.transfer.decode.rooms import FailRoom, GrantPages, OpenRoom, RefuseRoom, SumPrompt
from engine.transfer.facade import TransferFacade, prompt_hash
from engine.transfer.interface import FailReason
from engine.transfer.protocol.rooms import shown

log = logging.getLogger(__name__)

EXIT_FENCE_HANGS = 70


def end_process(why: str) -> None:
    """End the instance at once: no page of a hanging fence may ever be used again."""
    end_process_soon(EXIT_FENCE_HANGS)
    log.critical("ending this instance: %s", why)
    os._exit(EXIT_FENCE_HANGS)


class DecodeReader(TransferFacade):
    """Reads pages from prefills. Two threads: control and NIXL reads; lookups have short-lived ones of their own."""

    threads = ("transfer-control", "transfer-nixl")

    def __init__(
        self,
        config: EngineConfig,
        pool: KVPool,
        contract: dict[str, str],
        clock: Clock,
        journal: Journal,
        supervisor: Supervisor,
        ranks: InstanceRanks,
        end_instance: Callable[[str], None] = end_process,
    ) -> None:
        """`pool` is rank 0's; the other ranks have a `RankTransfer` each."""
        stopping = ThreadEvent()
        self._config = config
        self._pool = pool
        self._worker = ReadWorker(pool, clock, lambda report: self._control.inbox.put(report), stopping)
        self._resolver = Resolver(lambda answer: self._control.inbox.put(answer))
        self._control = DecodeControl(
            config,
            contract,
            pool.layout,
            ranks,
            clock,
            journal,
            stopping,
            own=self._worker.orders.put,
            ask=self._resolver.ask,
            end_instance=end_instance,
        )
        super().__init__(self._control, supervisor, stopping)

    def use_canary_page(self, page: int) -> None:
        """Read canaries into this page of every pool, which no ledger hands out. Before `start`."""
        send, order = self._control.links.send, self._control.hub.tell
        every_s = self._config.canary_every_s
        self._control.canary = CanaryReader(self._pool, page, self._control.clock, send, order, every_s)

    def peer_transfers(self) -> list[PeerTransfer]:
        """Return what the last canary of each prefill found."""
        canary = self._control.canary
        return [] if canary is None else canary.rows(list(self._control.links.current.values()))

    def start(self) -> None:
        """Start the threads and reach for every configured prefill; does not wait for any, only for our own ranks.

        Raises TransferError when one of those does not come.
        """
        self._control.hub.await_ranks()
        self._control.links.dial_all()
        self._start_thread("transfer-control", self._control.run)
        self._start_thread("transfer-nixl", self._worker.run)

    def open(
        self,
        rid: str,
        room: int,
        bootstrap: str,
        prompt_ids: list[int],
        prefix_tokens: int,
        record: RoomRecord,
    ) -> None:
        """Offer the room to the prefill behind `bootstrap`; see the interface."""
        record.state = "announced"
        hashed = prompt_hash(prompt_ids)
        asked = OpenRoom(rid, room, bootstrap, len(prompt_ids), hashed, prefix_tokens, record)
        self._control.inbox.put(asked)

    def grant(self, rid: str, pages: list[int], prefix_tokens: int | None = None) -> None:
        """Give the pool pages of the whole prompt, cached prefix included, in order; see the interface."""
        self._control.inbox.put(GrantPages(rid, tuple(pages), prefix_tokens))

    def refuse(self, room: int, bootstrap: str, detail: str) -> None:
        """Tell prefill that this room will not be offered (queue full), so that its leg fails at once."""
        self._control.inbox.put(RefuseRoom(room, bootstrap, detail))

    def fail(self, rid: str, reason: FailReason, detail: str) -> None:
        """Ask to end a room; `Failed` follows, or `Landed` when COMMIT was asked before and wins."""
        self._control.inbox.put(FailRoom(rid, reason, detail))

    def sum_pages(self, rid: str, pages: list[int]) -> None:
        """Have every rank sum its heads of these pages; a `Summed` of each follows."""
        self._control.inbox.put(SumPrompt(rid, tuple(pages)))

    def problems(self) -> list[str]:
        """Return dead threads on any rank, and that no prefill works when there should be one."""
        found = super().problems() + self._control.hub.problems()
        links = list(self._control.links.current.values())
        if links and not any(link.is_working for link in links):
            reasons = "; ".join(f"{link.bootstrap}: {link.error or link.phase}" for link in links)
            found.append(f"no prefill is reachable ({reasons})")
        return found

    def samples(self) -> list[Sample]:
        """Return the transfer metrics."""
        found = self._samples([shown(room.state) for room in list(self._control.rooms.values())])
        links = list(self._control.links.current.values())
        found.append(Sample("transfer_peers", sum(link.phase is LinkPhase.UP for link in links)))
        dropped = self._worker.agents_dropped + self._control.hub.losses()
        found.append(Sample("transfer_agents_dropped_total", dropped))
        return found
