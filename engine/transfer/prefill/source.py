"""Prefill's side of the transfer: `engine.transfer.interface.Source`."""

from __future__ import annotations

from threading import Event as ThreadEvent

from engine.clock import Clock
from engine.config import EngineConfig
from engine.kvcache.pool import KVPool
from engine.observe.journal import Journal
from engine.observe.records import PeerTransfer, RoomRecord, Sample
from engine.observe.threads import Supervisor
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.data.source_orders import chunks_of
from engine.transfer.data.source_worker import NO_PLANE, SourceWorker, source_agent_name
from engine.transfer.facade import TransferFacade, prompt_hash
from engine.transfer.interface import FailReason, FirstToken
from engine.transfer.prefill.canary import CanarySource
from engine.transfer.prefill.control import PrefillControl
from engine.transfer.prefill.ranks import FromRank
from engine.transfer.prefill.rooms import FailLeg, Leg
from engine.transfer.protocol.rooms import shown


class PrefillSource(TransferFacade):
    """Offers computed pages to decodes. Two threads: control, and one for the data-plane process."""

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
    ) -> None:
        """`pool` is rank 0's; the other ranks have a `RankTransfer` each."""
        stopping = ThreadEvent()
        self._worker = SourceWorker(
            pool, clock, config.checksums, lambda report: self._control.inbox.put(FromRank(0, report)), stopping
        )
        own = self._worker.orders.put
        self._control = PrefillControl(config, contract, pool.layout, ranks, clock, journal, stopping, own)
        self._heads = sum(len(heads) for heads in ranks.kv_heads)
        self._agent_name = source_agent_name(config, 0)
        super().__init__(self._control, supervisor, stopping)

    def use_canary_page(self, page: int) -> None:
        """Let decodes read this page of every pool, which no ledger hands out, as a canary. Before `start`."""
        self._control.canary = CanarySource(page, self._control.clock, self._control.sources.hub)

    def peer_transfers(self) -> list[PeerTransfer]:
        """Return what the last canary of each decode found."""
        canary = self._control.canary
        return [] if canary is None else canary.rows(list(self._control.peers.known.values()))

    @property
    def control_endpoint(self) -> str:
        """`tcp://host:port` where the control channel is bound."""
        return self._control.peers.channel.endpoint

    def start(self) -> None:
        """Start the data-plane process, which registers the pool with NIXL, and the threads; 1 s.

        Waits until the other ranks have theirs. Raises TransferError.
        """
        self._control.serve(self._worker.open(self._agent_name))
        self._start_thread("transfer-control", self._control.run)
        self._start_thread("transfer-nixl", self._worker.run)

    def announce(self, rid: str, room: int, prompt_ids: list[int], record: RoomRecord) -> None:
        """The HTTP leg has come. `Paired` or `Failed` follows."""
        record.state = "announced"
        self._control.inbox.put(Leg(rid, room, len(prompt_ids), prompt_hash(prompt_ids), record))

    def ready(self, rid: str, first_page: int, pages: list[int], first: FirstToken | None) -> None:
        """Pages `first_page..` of the prompt are computed on every rank, in pool pages `pages`; see the interface."""
        for chunk in chunks_of(rid, first_page, pages, first, self._heads):
            self._control.inbox.put(chunk)

    def fail(self, rid: str, reason: FailReason, detail: str) -> None:
        """Ask to end a room; `Failed` follows, or `Committed` when that was decided before."""
        self._control.inbox.put(FailLeg(rid, reason, detail))

    def stop(self) -> None:
        """Also end the data-plane process."""
        self._stopping.set()
        self._worker.orders.wake()
        super().stop()

    def problems(self) -> list[str]:
        """Return dead threads, and that there is no data plane just now, on any rank."""
        found = super().problems() + self._control.sources.hub.problems()
        if self._worker.pid is None:
            found.append(NO_PLANE)
        return found

    def samples(self) -> list[Sample]:
        """Return the transfer metrics."""
        found = self._samples([shown(room.state) for room in list(self._control.rooms.values())])
        found.append(Sample("transfer_peers", len(self._control.peers.known)))
        found.append(Sample("control_strangers_total", self._control.peers.channel.strangers))
        restarts = self._worker.restarts + self._control.sources.hub.losses()
        found.append(Sample("transfer_source_restarts_total", restarts))
        return found
