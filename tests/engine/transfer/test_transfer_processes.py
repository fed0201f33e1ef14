"""The two sides in two processes: what a dead, stopped or restarted peer does to the other one."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest
import zmq

from engine.transfer.interface import Committed, Failed, FailReason, Fenced, Landed, Paired, WantPages
from tests.engine.transfer.remote_side import RemoteDecode, RemotePrefill
from tests.engine.transfer.transfer_sides import TOKEN, Decode, Prefill, Registry, eventually

PROMPT = list(range(100, 114))
SOURCE = [10, 11, 30, 3]
TARGET = [5, 6, 7, 20]
_rooms = count(1)


@pytest.fixture(params=["default", "tcp"])
def transports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """UCX's own choice (shared memory) and TCP, which shows what the default hides."""
    if request.param == "tcp":
        monkeypatch.setenv("UCX_TLS", "tcp")
    return str(request.param)


def land(prefill: RemotePrefill, decode: Decode, rid: str) -> None:
    """One whole transfer from a prefill process into this one."""
    room = next(_rooms)
    prefill.call("announce", rid, room, PROMPT)
    decode.open(rid, room, PROMPT)
    prefill.call("await_event", Paired, rid)
    prefill.call("fill", SOURCE, room)
    prefill.call("transfer.ready", rid, 0, SOURCE[:2], None)
    prefill.call("transfer.ready", rid, 2, SOURCE[2:], TOKEN)
    decode.await_event(WantPages, rid)
    decode.transfer.grant(rid, TARGET)
    decode.await_event(Landed, rid)
    prefill.call("await_event", Committed, rid)
    assert decode.holds(TARGET, room)


def begin(prefill: RemotePrefill, decode: Decode, rid: str) -> None:
    """A room with one of its two chunks ready and pages granted."""
    room = next(_rooms)
    prefill.call("announce", rid, room, PROMPT)
    decode.open(rid, room, PROMPT)
    prefill.call("await_event", Paired, rid)
    prefill.call("fill", SOURCE, room)
    prefill.call("transfer.ready", rid, 0, SOURCE[:2], None)
    decode.await_event(WantPages, rid)
    decode.transfer.grant(rid, TARGET)


@pytest.fixture
def prefill(transports: str) -> Iterator[RemotePrefill]:
    remote = RemotePrefill()
    yield remote
    remote.end()


@pytest.fixture
def decode(prefill: RemotePrefill) -> Iterator[Decode]:
    made = Decode(prefill.address)
    yield made
    made.stop()


def test_killed_prefill_fails_rooms_and_its_successor_works(prefill: RemotePrefill, decode: Decode) -> None:
    """kill -9 of prefill fails decode's rooms within 2 s, returns their pages, and a new one is found."""
    land(prefill, decode, "before")
    begin(prefill, decode, "a")
    started = time.monotonic()
    prefill.kill()
    failed = decode.await_event(Failed, "a", timeout_s=5)
    assert time.monotonic() - started < 2
    assert failed.reason in (FailReason.PEER_GONE, FailReason.READ_FAILED)
    decode.await_event(Fenced, "a", timeout_s=3)
    successor = RemotePrefill(int(prefill.address.rpartition(":")[2]))
    try:
        land(successor, decode, "after")
    finally:
        successor.end()


def test_killed_decode_fails_rooms_and_its_successor_works(transports: str) -> None:
    """kill -9 of decode fails prefill's rooms within 2 s; a new decode is served by the same prefill."""
    registry, prefill = Registry(), Prefill()
    registry.publish(prefill)
    victim = RemoteDecode(registry.address)
    successor = None
    try:
        prefill.announce("a", 1, PROMPT)
        victim.call("open", "a", 1, PROMPT)
        prefill.await_event(Paired, "a")
        prefill.transfer.ready("a", 0, SOURCE[:2], None)
        victim.call("await_event", WantPages, "a")
        started = time.monotonic()
        victim.kill()
        assert prefill.await_event(Failed, "a", timeout_s=5).reason is FailReason.PEER_GONE
        assert time.monotonic() - started < 2
        successor = RemoteDecode(registry.address)
        prefill.announce("b", 2, PROMPT)
        successor.call("open", "b", 2, PROMPT)
        prefill.await_event(Paired, "b")
        prefill.fill(SOURCE, 2)
        prefill.transfer.ready("b", 0, SOURCE, TOKEN)
        successor.call("await_event", WantPages, "b")
        successor.call("transfer.grant", "b", TARGET)
        successor.call("await_event", Landed, "b")
        prefill.await_event(Committed, "b")
        assert successor.call("holds", TARGET, 2)
    finally:
        victim.end()
        if successor is not None:
            successor.end()
        prefill.stop()
        registry.stop()


@pytest.mark.parametrize("transports", ["default"], indirect=True)
def test_a_stopped_prefill_is_noticed_and_recovers(prefill: RemotePrefill, decode: Decode) -> None:
    """SIGSTOP fails the rooms after the silence clock; after SIGCONT both sides work again by themselves."""
    begin(prefill, decode, "a")
    started = time.monotonic()
    prefill.signal(signal.SIGSTOP)
    failed = decode.await_event(Failed, "a", timeout_s=8)
    assert 4 < time.monotonic() - started < 6.5
    assert failed.reason is FailReason.PEER_SILENT
    decode.await_event(Fenced, "a", timeout_s=3)
    prefill.signal(signal.SIGCONT)
    assert prefill.call("await_event", Failed, "a").reason is FailReason.PEER_GONE
    eventually(lambda: decode.transfer.problems() == [])
    land(prefill, decode, "after")


@pytest.mark.parametrize("transports", ["default"], indirect=True)
def test_a_decode_that_was_given_up_begins_nothing_on_the_old_link(
    prefill: RemotePrefill, decode: Decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows by its own clock that it did not run: a room opened meanwhile pairs on a new link, at once."""
    begin(prefill, decode, "a")
    control, goes_on = decode.transfer._control, threading.Event()
    receive = control._receive

    def receive_late() -> None:
        goes_on.wait()
        receive()

    monkeypatch.setattr(control, "_receive", receive_late)
    assert prefill.call("await_event", Failed, "a", 8).reason is FailReason.PEER_SILENT
    room = next(_rooms)
    prefill.call("announce", "b", room, PROMPT)
    decode.open("b", room, PROMPT)
    goes_on.set()
    prefill.call("await_event", Paired, "b")
    assert decode.await_event(Failed, "a").reason is FailReason.PEER_GONE


@pytest.mark.parametrize("transports", ["tcp"], indirect=True)
def test_a_stopped_source_cannot_touch_fenced_pages(prefill: RemotePrefill, decode: Decode) -> None:
    """READs that hang on a stopped source are fenced within 2 s, and no late byte comes."""
    land(prefill, decode, "first")
    room = next(_rooms)
    prefill.call("announce", "a", room, PROMPT[:4])
    decode.open("a", room, PROMPT[:4])
    prefill.call("await_event", Paired, "a")
    prefill.call("transfer.ready", "a", 0, SOURCE[:1], TOKEN)
    decode.await_event(WantPages, "a")
    plane = prefill.call("plane_pid")
    prefill.signal(signal.SIGSTOP)
    os.kill(plane, signal.SIGSTOP)
    decode.transfer.grant("a", [40])
    eventually(lambda: decode.transfer._control.rooms["a"].reads)
    decode.transfer.fail("a", FailReason.ABORTED, "client left")
    decode.await_event(Fenced, "a", timeout_s=2)
    assert decode.transfer._worker.agents_dropped == 1
    decode.fill([40], seed=5)
    os.kill(plane, signal.SIGCONT)
    prefill.signal(signal.SIGCONT)
    prefill.kill()
    eventually(lambda: decode.transfer.problems())
    assert decode.holds([40], seed=5), "bytes came after the fence"


@pytest.mark.parametrize("transports", ["default"], indirect=True)
def test_a_hostile_client_does_not_hurt(prefill: RemotePrefill, decode: Decode) -> None:
    """A thousand random messages and a half-open connection leave the control thread alive."""
    endpoint = decode_endpoint(decode)
    context = zmq.Context()
    client = context.socket(zmq.DEALER)
    client.setsockopt(zmq.LINGER, 1000)
    client.connect(endpoint)
    chance = random.Random(11)
    for _ in range(1000):
        client.send_multipart([chance.randbytes(chance.randrange(80))] * chance.choice((1, 1, 2)))
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.send(os.urandom(64))
        land(prefill, decode, "amid noise")
    client.close()
    context.term()
    down = prefill.call("transfer.problems")
    assert down == []
    samples = {sample.name: sample.value for sample in prefill.call("transfer.samples")}
    assert samples["control_bad_frames_total"] > 500


def decode_endpoint(decode: Decode) -> str:
    eventually(lambda: decode.transfer.problems() == [])
    (link,) = decode.transfer._control.links.current.values()
    assert link.record is not None
    return link.record.control_endpoint
