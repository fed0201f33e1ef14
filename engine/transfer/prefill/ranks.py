"""Prefill's ranks as its control thread sees them: where each is read, what each has summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import zmq

from engine.transfer.data.rank_link import InstanceRanks, RankHub
from engine.transfer.data.source_orders import (
    CanaryFilled,
    ChunkSummed,
    SourceChanged,
    SourceOrder,
    SourceReport,
    Stir,
)
from engine.transfer.interface import FailReason
from engine.transfer.prefill.steps import READABLE
from engine.transfer.protocol.frames import RankPool, Ready
from engine.transfer.protocol.rooms import PrefillEvent

if TYPE_CHECKING:
    from engine.transfer.prefill.control import PrefillControl


@dataclass(frozen=True, slots=True)
class FromRank:
    """What the source worker of a rank reports."""

    rank: int
    report: SourceReport

    @property
    def rid(self) -> str:
        """Return the room it is about, empty for none."""
        return self.report.rid if isinstance(self.report, ChunkSummed) else ""


class SourceRanks:
    """Part of prefill's control thread. `own` takes the orders for rank 0's source worker."""

    def __init__(
        self,
        control: PrefillControl,
        context: zmq.Context[zmq.Socket[bytes]],
        ranks: InstanceRanks,
        own: Callable[[SourceOrder], None],
    ) -> None:
        self.hub: RankHub[SourceOrder, SourceReport] = RankHub(context, ranks, own, SourceReport)
        self._control = control

    @property
    def is_readable(self) -> bool:
        """Say whether every rank has an agent to be read from."""
        return all(rank.nixl_metadata for rank in self._control.ranks)

    def receive(self) -> None:
        """Queue what the other ranks have sent."""
        for rank, report in self.hub.receive():
            self._control.inbox.put(FromRank(rank, report))

    def stir(self) -> None:
        """Have every rank's data plane poll tightly for a while."""
        self.hub.tell_all(Stir(sum(room.state in READABLE for room in self._control.rooms.values())))

    def hear(self, item: FromRank) -> None:
        """Do what a report asks for."""
        match item.report:
            case ChunkSummed():
                self._summed(item.rank, item.report)
            case SourceChanged():
                self.use(item.rank, item.report)
                self.stir()
            case CanaryFilled(nonce) if self._control.canary is not None:
                if (filled := self._control.canary.filled(item.rank, nonce)) is not None:
                    self._control.peers.send(*filled)

    def use(self, rank: int, changed: SourceChanged) -> None:
        """Tell every decode where the pages are now; while a rank has no data plane, HELLO is not answered."""
        control = self._control
        if changed.metadata:
            control.source_number += 1
        pool = control.ranks[rank]
        geometry = msgspec.structs.replace(pool.geometry, address=changed.address)
        control.ranks[rank] = RankPool(pool.first_head, geometry, changed.metadata, changed.number)
        for peer in list(control.peers.known.values()) if self.is_readable else ():
            control.peers.send(peer, control.hello())

    def _summed(self, rank: int, summed: ChunkSummed) -> None:
        """Offer a chunk once every rank has summed its heads of it."""
        steps = self._control.steps
        room = steps.by_rid.get(summed.rid)
        if room is None:
            return
        if summed.error:
            steps.apply(room, PrefillEvent.FAIL, FailReason.READ_FAILED, f"checksums failed: {summed.error}")
            return
        chunk = summed.chunk
        sums = room.sums.setdefault(chunk.first_page, {})
        sums[rank] = summed.checksums
        if len(sums) < self.hub.size:
            return
        del room.sums[chunk.first_page]
        last = chunk.first is not None
        by_rank = [sums[rank] for rank in range(self.hub.size)]
        ready = Ready(room.number, chunk.first_page, list(chunk.pages), by_rank, last, chunk.first)
        steps.apply(room, PrefillEvent.LAST_CHUNK if last else PrefillEvent.CHUNK, frame=ready)
