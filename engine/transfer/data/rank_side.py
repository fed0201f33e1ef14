"""The transfer on a rank other than 0: a worker over this rank's pool, which rank 0's control thread commands."""

from __future__ import annotations

from typing import Protocol

from engine.clock import Clock
from engine.config import EngineConfig, Role
from engine.kvcache.pool import KVPool
from engine.observe.threads import Supervisor
from engine.transfer.data.rank_link import InstanceRanks, RankPort, RankState
from engine.transfer.data.read_orders import Order, Report
from engine.transfer.data.read_worker import ReadWorker
from engine.transfer.data.source_orders import SourceChanged, SourceOrder, SourceReport
from engine.transfer.data.source_worker import NO_PLANE, SourceWorker, source_agent_name

THREADS = ("transfer-orders", "transfer-nixl")


class RankTransfer(Protocol):
    """What a rank other than 0 does for the transfer: it decides nothing. It ends with its supervisor."""

    def start(self) -> None:
        """Start the threads; rank 0 waits for this. Raises TransferError."""


class ReaderRank:
    """A rank of decode: reads its heads."""

    def __init__(
        self, config: EngineConfig, rank: int, pool: KVPool, ranks: InstanceRanks, clock: Clock, supervisor: Supervisor
    ) -> None:
        self._supervisor = supervisor
        self._worker = ReadWorker(pool, clock, lambda report: self._port.report(report), supervisor.stopping)
        take = self._worker.orders.put
        self._port: RankPort[Order, Report] = RankPort(ranks, rank, take, Order, clock, supervisor.stopping)

    def start(self) -> None:
        """Start the threads."""
        self._supervisor.start("transfer-nixl", self._worker.run)
        self._supervisor.start("transfer-orders", lambda: self._port.run(self._state))

    def _state(self) -> RankState:
        return RankState(self._supervisor.problems(THREADS), self._worker.agents_dropped)


class SourceRank:
    """A rank of prefill: sums its heads, and has a data-plane process through which they are read."""

    def __init__(
        self, config: EngineConfig, rank: int, pool: KVPool, ranks: InstanceRanks, clock: Clock, supervisor: Supervisor
    ) -> None:
        self._supervisor = supervisor
        self._agent_name = source_agent_name(config, rank)
        self._worker = SourceWorker(
            pool, clock, config.checksums, lambda report: self._port.report(report), supervisor.stopping
        )
        take = self._worker.orders.put
        self._port: RankPort[SourceOrder, SourceReport] = RankPort(
            ranks, rank, take, SourceOrder, clock, supervisor.stopping
        )

    def start(self) -> None:
        """Start the data-plane process (1 s) and the threads; raises TransferError."""
        opened = self._worker.open(self._agent_name)
        self._port.report(SourceChanged(1, opened.metadata, opened.address))
        self._supervisor.start("transfer-nixl", self._worker.run)
        self._supervisor.start("transfer-orders", lambda: self._port.run(self._state))

    def _state(self) -> RankState:
        problems = self._supervisor.problems(THREADS)
        if self._worker.pid is None:
            problems.append(NO_PLANE)
        return RankState(problems, self._worker.restarts)


def rank_transfer(
    config: EngineConfig, rank: int, pool: KVPool, ranks: InstanceRanks, clock: Clock, supervisor: Supervisor
) -> RankTransfer | None:
    """Return what this rank does for the transfer; None for an instance that takes no part in any."""
    match config.role:
        case Role.PREFILL:
            return SourceRank(config, rank, pool, ranks, clock, supervisor)
        case Role.DECODE:
            return ReaderRank(config, rank, pool, ranks, clock, supervisor)
        case Role.UNIFIED:
            return None
