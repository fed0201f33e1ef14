"""Orders and reports between rank 0's control thread and the worker of another rank, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
import zmq

from engine.clock import SystemClock
from engine.errors import TransferError
from engine.transfer.data import rank_link
from engine.transfer.data.rank_link import InstanceRanks, RankHub, RankPort, RankState
from engine.transfer.data.source_orders import (
    CanaryFilled,
    Chunk,
    ChunkSummed,
    SourceChanged,
    SourceOrder,
    SourceReport,
    Stir,
)
from engine.transfer.inbox import Inbox
from engine.transfer.interface import FirstToken
from tests.engine.transfer.transfer_sides import eventually

CHUNK = Chunk("a", 4, (1, 2), FirstToken(token_id=7, logprob=None, finish="stop", cached_tokens=3))
REPORTS = [SourceChanged(2, b"metadata", 4096), ChunkSummed(CHUNK, b"\1\2\3\4"), CanaryFilled(b"nonce")]

Hub = RankHub[SourceOrder, SourceReport]


class Other:
    """A rank other than 0 whose worker only collects."""

    def __init__(self, ranks: InstanceRanks, rank: int) -> None:
        self.taken: Inbox[SourceOrder] = Inbox()
        self.problems: list[str] = []
        self._stopping = Event()
        self.port: RankPort[SourceOrder, SourceReport] = RankPort(
            ranks, rank, self.taken.put, SourceOrder, SystemClock(), self._stopping
        )
        self._thread = Thread(target=self.port.run, args=(lambda: RankState(self.problems, 3),))
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@pytest.fixture
def ranks(tmp_path: Path) -> InstanceRanks:
    return InstanceRanks((range(1), range(1, 2), range(2, 3)), str(tmp_path))


@pytest.fixture
def own() -> Inbox[SourceOrder]:
    """What rank 0's own worker is told."""
    return Inbox()


@pytest.fixture
def hub(ranks: InstanceRanks, own: Inbox[SourceOrder]) -> Iterator[Hub]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made: Hub = RankHub(context, ranks, own.put, SourceReport)
    yield made
    made.close()
    context.term()


@pytest.fixture
def others(hub: Hub, ranks: InstanceRanks) -> Iterator[list[Other]]:
    """Ranks 1 and 2, which rank 0 has met."""
    made = [Other(ranks, rank) for rank in (1, 2)]
    hub.await_ranks()
    yield made
    for other in made:
        other.stop()


def test_an_order_reaches_the_rank_it_is_for(hub: Hub, others: list[Other], own: Inbox[SourceOrder]) -> None:
    """As it was given, in order; one for all reaches rank 0's own worker, too."""
    hub.tell(2, CHUNK)
    hub.tell_all(Stir(5))
    eventually(lambda: len(others[0].taken) == 1 and len(others[1].taken) == 2)
    assert [one.taken.take_all() for one in others] == [[Stir(5)], [CHUNK, Stir(5)]]
    assert own.take_all() == [Stir(5)]


def test_a_report_comes_with_its_rank(hub: Hub, others: list[Other]) -> None:
    """Every kind of report, unchanged and in order."""
    for report in REPORTS:
        others[1].port.report(report)
    heard: list[tuple[int, SourceReport]] = []
    eventually(lambda: heard.extend(hub.receive()) or len(heard) == len(REPORTS))
    assert heard == [(2, report) for report in REPORTS]


def test_what_is_wrong_on_a_rank_is_known_on_rank_0(hub: Hub, others: list[Other]) -> None:
    """Within a second, and that it is over as well."""
    assert (hub.problems(), hub.losses()) == ([], 6)
    others[0].problems = ["thread transfer-nixl is down: boom"]
    eventually(lambda: list(hub.receive()) or hub.problems() == ["rank 1: thread transfer-nixl is down: boom"])
    others[0].problems = []
    eventually(lambda: list(hub.receive()) or hub.problems() == [])


def test_reports_before_a_rank_says_that_it_is_there_are_kept(hub: Hub, ranks: InstanceRanks) -> None:
    """Rank 0 may come last, and loses nothing."""
    made = [Other(ranks, rank) for rank in (1, 2)]
    try:
        made[0].port.report(REPORTS[0])
        heard = hub.await_ranks()
        eventually(lambda: heard.extend(hub.receive()) or heard)
        assert heard == [(1, REPORTS[0])]
    finally:
        for other in made:
            other.stop()


def test_a_rank_that_does_not_come_is_named(hub: Hub, ranks: InstanceRanks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 does not wait for ever."""
    monkeypatch.setattr(rank_link, "START_TIMEOUT_MS", 2000)
    other = Other(ranks, 1)
    try:
        with pytest.raises(TransferError, match="rank 2 did not start within 2 s"):
            hub.await_ranks()
    finally:
        other.stop()


def test_a_rank_that_is_gone_takes_no_orders(hub: Hub, others: list[Other]) -> None:
    """The order fails instead of waiting somewhere for ever."""
    others[0].stop()

    def is_refused() -> bool:
        try:
            hub.tell(1, CHUNK)
        except TransferError as error:
            return "rank 1 takes no orders" in str(error)
        return False

    eventually(is_refused)
    hub.tell(2, CHUNK)
    eventually(lambda: others[1].taken.take() == CHUNK)
