"""Decode's read thread against an agent whose READs end when the test says so."""

from __future__ import annotations

from threading import Event

import pytest

from engine.errors import TransferError
from engine.kvcache.pool import KVLayout, KVPool
from engine.transfer.data import read_worker
from engine.transfer.data.checksums import page_checksums
from engine.transfer.data.nixl_backend import Read, ReadState
from engine.transfer.data.read_orders import (
    ClosePeer,
    FenceRoom,
    OpenPeer,
    PeerOpened,
    PeerUnusable,
    PostRead,
    ReadFinished,
    Report,
    RoomFenced,
)
from engine.transfer.data.read_worker import FENCE_WAIT_S, ReadWorker
from engine.transfer.data.runs import Descriptors, Place
from engine.transfer.interface import FailReason
from engine.transfer.protocol.head_runs import HeadRun

LAYOUT = KVLayout(layers=1, kv_heads=1, pages=8, page_size=2, head_dim=2, dtype="float32", item_bytes=4)
HEADS = HeadRun(source_rank=0, reader_rank=0, source_head=0, reader_head=0, count=1)
PAGE_BYTES = 1 * 2 * 1 * 2 * 2 * 4


class ManualClock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class ManualAgent:
    """Keeps READs running until `settle`; remembers what was posted and that it was dropped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.posted: list[Read] = []
        self.dropped: list[Read] | None = None

    def add_peer(self, metadata: bytes) -> str:
        return metadata.decode()

    def read(self, peer: str, here: Descriptors, there: Descriptors) -> Read:
        assert self.dropped is None
        read = Read(handle=(peer, here.tolist(), there.tolist()))
        self.posted.append(read)
        return read

    def poll(self, read: Read) -> ReadState:
        return read.state

    def release(self, read: Read) -> None:
        assert read.state is not ReadState.RUNNING or self.dropped is not None

    def drop(self, reads: list[Read]) -> None:
        self.dropped = list(reads)


class Bench:
    """A worker whose turns are taken by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.pool = KVPool(LAYOUT)
        self.agents: list[ManualAgent] = []
        self.reports: list[Report] = []
        self.broken = False
        self.worker = ReadWorker(self.pool, self.clock, self.reports.append, Event(), self._make)  # type: ignore[arg-type]
        self.give(OpenPeer("link", "decode-0", b"source", Place(4096, LAYOUT), HEADS))

    def _make(self, name: str, _: KVPool) -> ManualAgent:
        if self.broken:
            raise TransferError("no backend")
        self.agents.append(ManualAgent(name))
        return self.agents[-1]

    def give(self, *orders: OpenPeer | ClosePeer | PostRead | FenceRoom) -> list[Report]:
        """Give orders, take a turn, and return what was reported in it."""
        for order in orders:
            self.worker.orders.put(order)
        before = len(self.reports)
        self.worker.turn()
        return self.reports[before:]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def order(rid: str, index: int = 0, checksums: bytes = b"") -> PostRead:
    return PostRead("link", rid, index, (1, 2), (4, 5), checksums)


def test_a_finished_read_reports_bytes_and_seconds(bench: Bench) -> None:
    """The time runs from post to DONE."""
    assert bench.give(order("a")) == []
    bench.agents[0].posted[0].state = ReadState.DONE
    bench.clock.now += 0.25
    assert bench.give() == [ReadFinished("link", "a", 0, 2 * PAGE_BYTES, 0.25)]


def test_a_failed_read_reports_why(bench: Bench) -> None:
    """An error of the backend fails the room with its text."""
    bench.give(order("a"))
    read = bench.agents[0].posted[0]
    read.state, read.error = ReadState.ERROR, "nixlRemoteDisconnectError"
    (report,) = bench.give()
    assert isinstance(report, ReadFinished)
    assert (report.reason, report.detail) == (FailReason.READ_FAILED, "nixlRemoteDisconnectError")


def test_wrong_bytes_are_reported_as_such(bench: Bench) -> None:
    """A page that does not match its checksum is named by its index in the prompt."""
    sums = page_checksums(bench.pool, (4, 5))
    bench.give(order("a", index=6, checksums=sums))
    bench.pool.bytes_view()[0, 0, 0, 5, 0] = 1
    bench.agents[0].posted[0].state = ReadState.DONE
    (report,) = bench.give()
    assert isinstance(report, ReadFinished)
    assert report.reason is FailReason.CHECKSUM_MISMATCH
    assert report.detail.startswith("page 7 of the prompt")


def test_a_read_that_cannot_be_verified_fails_its_room_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreported it would be waited for until the request's deadline, its pages held on both sides."""

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(read_worker, "differing_page", no_memory)
    bench.give(order("a", checksums=b"x" * 8))
    bench.agents[0].posted[0].state = ReadState.DONE
    (report,) = bench.give()
    assert isinstance(report, ReadFinished)
    assert (report.reason, report.detail) == (FailReason.READ_FAILED, "no memory to verify the checksums")


def test_a_fence_with_nothing_running_is_immediate(bench: Bench) -> None:
    """Pages that no READ can touch are fenced at once, and the agent stays."""
    assert bench.give(FenceRoom("link", "a")) == [RoomFenced("link", "a")]
    assert bench.agents[0].dropped is None


def test_a_fence_waits_for_running_reads_to_settle(bench: Bench) -> None:
    """A READ that ends within the second costs no agent, and counts no longer for the room."""
    bench.give(order("a"))
    assert bench.give(FenceRoom("link", "a")) == []
    bench.clock.now += FENCE_WAIT_S - 0.01
    bench.agents[0].posted[0].state = ReadState.DONE
    assert bench.give() == [RoomFenced("link", "a")]
    assert bench.agents[0].dropped is None


def test_a_fence_drops_the_agent_and_others_read_again(bench: Bench) -> None:
    """Past the second the agent goes with all its READs; a new generation reads for the other room."""
    bench.give(order("failing"), order("staying", index=3), FenceRoom("link", "failing"))
    bench.clock.now += FENCE_WAIT_S
    assert bench.give() == [RoomFenced("link", "failing"), PeerOpened("link")]
    old, new = bench.agents
    assert old.dropped == old.posted
    assert (old.name, new.name) == ("decode-0/0", "decode-0/1")
    assert [read.handle for read in new.posted] == [old.posted[1].handle]
    new.posted[0].state = ReadState.DONE
    assert bench.give() == [ReadFinished("link", "staying", 3, 2 * PAGE_BYTES, 0.0)]


def test_a_fence_after_a_failed_read_drops_the_agent(bench: Bench) -> None:
    """ERR or a raise says nothing of the other descriptors: the pages are fenced only when the agent is gone."""
    bench.give(order("a"))
    bench.agents[0].posted[0].state = ReadState.ERROR
    bench.give()
    assert bench.agents[0].dropped is None
    assert bench.give(FenceRoom("link", "a")) == [RoomFenced("link", "a"), PeerOpened("link")]
    assert bench.agents[0].dropped == []
    assert bench.give(FenceRoom("link", "b")) == [RoomFenced("link", "b")]
    assert bench.agents[1].dropped is None


def test_a_new_source_is_read_again(bench: Bench) -> None:
    """When prefill's data plane has changed, what was being read begins again from the new address."""
    bench.give(order("a", index=3))
    bench.give(OpenPeer("link", "decode-1", b"second", Place(8192, LAYOUT), HEADS))
    old, new = bench.agents
    assert old.dropped == old.posted
    (peer, here, there), (_, old_here, old_there) = new.posted[0].handle, old.posted[0].handle
    assert peer == "second"
    assert here == old_here
    assert [row[0] - 8192 for row in there] == [row[0] - 4096 for row in old_there]
    new.posted[0].state = ReadState.DONE
    assert bench.give() == [ReadFinished("link", "a", 3, 2 * PAGE_BYTES, 0.0)]


def test_a_lost_link_settles_all_its_fences(bench: Bench) -> None:
    """Closing a link drops its agent, so every room of it is fenced without waiting."""
    bench.give(order("a"), FenceRoom("link", "a"))
    reports = bench.give(ClosePeer("link"))
    assert RoomFenced("link", "a") in reports
    assert bench.agents[0].dropped is not None
    assert bench.give(FenceRoom("link", "b")) == [RoomFenced("link", "b")]


def test_whether_an_agent_was_made_is_told(bench: Bench) -> None:
    """Of each attempt: health is told by it."""
    again = OpenPeer("link", "decode-1", b"second", Place(8192, LAYOUT), HEADS)
    assert bench.reports == [PeerOpened("link")]
    bench.broken = True
    assert bench.give(again) == [PeerUnusable("link", "no backend")]
    bench.broken = False
    assert bench.give(again) == [PeerOpened("link")]


def test_no_new_agent_fails_the_other_rooms(bench: Bench) -> None:
    """When the new generation cannot be made, rooms that wanted to read again fail instead of waiting."""
    bench.give(order("failing"), order("staying"), FenceRoom("link", "failing"))
    bench.clock.now += FENCE_WAIT_S
    bench.broken = True
    reports = bench.give()
    assert reports[0] == RoomFenced("link", "failing")
    assert isinstance(reports[1], ReadFinished)
    assert (reports[1].rid, reports[1].reason) == ("staying", FailReason.READ_FAILED)


def test_an_order_in_hand_during_a_crash_is_answered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while posting fails that room when the thread comes back; it does not wait for ever."""

    def crash(*_: object) -> Read:
        raise RuntimeError("injected")

    monkeypatch.setattr(bench.agents[0], "read", crash)
    with pytest.raises(RuntimeError, match="injected"):
        bench.give(order("a"))
    bench.worker._stopping.set()
    bench.worker.run()
    (report,) = [r for r in bench.reports if isinstance(r, ReadFinished)]
    assert (report.rid, report.reason) == ("a", FailReason.READ_FAILED)
