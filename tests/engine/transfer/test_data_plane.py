"""Prefill's data-plane process: what its death, or a reader's death over TCP, does to prefill and its rooms."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from threading import Event, Thread

import pytest

from engine.clock import SystemClock
from engine.kvcache.pool import KVPool
from engine.transfer.data.checksums import page_checksums
from engine.transfer.data.plane_messages import SLICE_PAGES
from engine.transfer.data.source_orders import Chunk, ChunkSummed, SourceChanged, SourceReport
from engine.transfer.data.source_worker import SourceWorker
from engine.transfer.inbox import Inbox
from engine.transfer.interface import Committed, Landed, Paired, WantPages
from tests.engine.transfer.remote_side import RemoteReader
from tests.engine.transfer.transfer_sides import (
    LAYOUT,
    PROMPT,
    SOURCE,
    TARGET,
    TOKEN,
    WAIT_S,
    Decode,
    Prefill,
    Registry,
    eventually,
)

_rooms = count(1)
Worker = tuple[SourceWorker, Inbox[SourceReport], KVPool]


@pytest.fixture(params=["default", "tcp"])
def transports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tcp":
        monkeypatch.setenv("UCX_TLS", "tcp")
    return str(request.param)


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.stop()


@pytest.fixture
def prefill(transports: str, registry: Registry) -> Iterator[Prefill]:
    made = Prefill()
    registry.publish(made)
    yield made
    made.stop()


def land(prefill: Prefill, decode: Decode, rid: str) -> None:
    """One whole transfer within this process."""
    begin(prefill, decode, rid)
    finish(prefill, decode, rid)


def begin(prefill: Prefill, decode: Decode, rid: str) -> None:
    room = next(_rooms)
    prefill.announce(rid, room, PROMPT)
    decode.open(rid, room, PROMPT)
    prefill.await_event(Paired, rid)
    prefill.fill(SOURCE, 7)
    prefill.transfer.ready(rid, 0, SOURCE[:2], None)
    decode.await_event(WantPages, rid)


def finish(prefill: Prefill, decode: Decode, rid: str) -> None:
    decode.transfer.grant(rid, TARGET)
    prefill.transfer.ready(rid, 2, SOURCE[2:], TOKEN)
    decode.await_event(Landed, rid)
    prefill.await_event(Committed, rid)
    assert decode.holds(TARGET, 7)


def test_a_room_outlives_the_data_plane(prefill: Prefill, registry: Registry) -> None:
    """A room that was not being read when the process was killed lands through the next one."""
    decode = Decode(registry.address)
    try:
        land(prefill, decode, "before")
        begin(prefill, decode, "a")
        victim = prefill.plane_pid()
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: prefill.plane_pid() not in (0, victim))
        eventually(lambda: decode.transfer._control.links.of(registry.address).source == 2)
        finish(prefill, decode, "a")
        land(prefill, decode, "b")
        assert prefill.transfer.problems() == []
    finally:
        decode.stop()


@pytest.mark.parametrize("transports", ["tcp"], indirect=True)
def test_readers_killed_in_mid_read_leave_prefill_serving(prefill: Prefill, registry: Registry) -> None:
    """UCX aborts the data plane that answers a broken reader over TCP; prefill lives, the next reader is served."""
    plane = prefill.plane_pid()
    (pool,) = prefill.transfer._control.ranks
    victim = RemoteReader(pool.nixl_metadata, pool.geometry)
    os.kill(plane, signal.SIGSTOP)
    victim.post()
    victim.kill()
    os.kill(plane, signal.SIGCONT)
    decode = Decode(registry.address)
    try:
        eventually(lambda: prefill.plane_pid() not in (0, plane))
        eventually(lambda: prefill.transfer.problems() == [])
        land(prefill, decode, "after")
    finally:
        decode.stop()


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A data plane alone, which is asked five times a second whether it lives."""
    pool, reports, stopping = KVPool(LAYOUT), Inbox[SourceReport](), Event()
    made = SourceWorker(pool, SystemClock(), True, reports.put, stopping, beat_s=0.2)
    made.open("prefill-0/x/0")
    thread = Thread(target=made.run)
    thread.start()
    yield made, reports, pool
    stopping.set()
    made.orders.wake()
    thread.join(WAIT_S)


def next_report(reports: Inbox[SourceReport]) -> SourceReport:
    found: list[SourceReport] = []
    eventually(lambda: found or found.extend(item for item in [reports.take()] if item))
    return found[0]


def test_checksums_of_a_long_chunk_come_in_one_piece(worker: Worker) -> None:
    """A chunk of more pages than one message holds gets the checksums of all of them, in order."""
    plane, reports, pool = worker
    pool.bytes_view()[:] = 3
    pool.bytes_view()[:, :, :, 5] = 9
    pages = tuple([5, 6, 7] * (SLICE_PAGES // 2))
    plane.orders.put(Chunk("a", 0, pages, None))
    summed = next_report(reports)
    assert isinstance(summed, ChunkSummed)
    assert (summed.rid, summed.error) == ("a", "")
    assert summed.checksums == page_checksums(pool, [5, 6, 7]) * (SLICE_PAGES // 2)


def test_the_chunk_in_hand_is_given_to_the_next_process(
    worker: Worker,
) -> None:
    """A data plane that hangs is killed after five unanswered beats, and no chunk is lost with it."""
    plane, reports, pool = worker
    hanging = plane.pid
    assert hanging is not None
    os.kill(hanging, signal.SIGSTOP)
    plane.orders.put(Chunk("a", 0, (1, 2), None))
    lost = next_report(reports)
    assert lost == SourceChanged(1)
    found = next_report(reports)
    assert isinstance(found, SourceChanged)
    assert (found.number, bool(found.metadata)) == (2, True)
    summed = next_report(reports)
    assert isinstance(summed, ChunkSummed)
    assert summed.checksums == page_checksums(pool, [1, 2])
    assert plane.restarts == 1
