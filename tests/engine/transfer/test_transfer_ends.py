"""What ends rooms besides their own requests: clocks, a peer that leaves or does not fit, no peer at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from engine.transfer.interface import Committed, Failed, FailReason, Landed, WantPages
from engine.transfer.protocol.rooms import DecodeState
from tests.engine.transfer.pairs import Pair, make_pair, pair_up
from tests.engine.transfer.transfer_sides import CONTRACT, PROMPT, SOURCE, TARGET, TOKEN, Decode, Prefill, Registry


def test_prefill_pairing_clock(hasty_pair: Pair, rid: str, room: int) -> None:
    """A leg whose offer never comes fails after the pairing time; a late offer is then refused."""
    hasty_pair.prefill.announce(rid, room, PROMPT)
    failed = hasty_pair.prefill.await_event(Failed, rid)
    assert failed.reason is FailReason.PAIRING_TIMEOUT
    hasty_pair.decode.open(rid, room, PROMPT)
    assert hasty_pair.decode.await_event(Failed, rid).reason is FailReason.PAIRING_TIMEOUT


def test_decode_pairing_clock(hasty_pair: Pair, rid: str, room: int) -> None:
    """An offer whose HTTP leg never comes fails on decode after the pairing time."""
    hasty_pair.decode.open(rid, room, PROMPT)
    assert hasty_pair.decode.await_event(Failed, rid).reason is FailReason.PAIRING_TIMEOUT


def test_a_stuck_loop_behind_live_threads_is_caught(hasty_pair: Pair, rid: str, room: int) -> None:
    """Heartbeats whose tick does not move fail the rooms of that peer on both sides."""
    hasty_pair.prefill.transfer.progress(41, 0.01)
    pair_up(hasty_pair, rid, room)
    assert hasty_pair.decode.await_event(Failed, rid).reason is FailReason.PEER_STUCK
    assert hasty_pair.prefill.await_event(Failed, rid).reason is FailReason.PEER_STUCK


@pytest.mark.parametrize("place", ["_receive", "_notice_own_pause", "_obey", "_tick"])
def test_a_prefill_that_did_not_run_calls_nobody_silent(
    rid: str, room: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped before a part of its turn, whichever: the decode that gave it up came back on a new connection."""
    pair = make_pair(silence_timeout_s=1.5)
    try:
        pair_up(pair, rid, room)
        control = pair.prefill.transfer._control
        part = getattr(control, place)

        def stopped_once(*args: object) -> None:
            monkeypatch.setattr(control, place, part)
            time.sleep(2.5)
            part(*args)

        monkeypatch.setattr(control, place, stopped_once)
        pair.prefill.transfer.fail("another", FailReason.ABORTED, "something to obey")
        assert pair.decode.await_event(Failed, rid).reason is FailReason.PEER_SILENT
        assert pair.prefill.await_event(Failed, rid).reason is FailReason.PEER_GONE
    finally:
        pair.stop()


def test_a_draining_prefill_refuses_new_rooms(hasty_pair: Pair, rid: str, room: int) -> None:
    """After `drain` a paired room lands, a new offer is refused."""
    pair_up(hasty_pair, rid, room)
    hasty_pair.prefill.transfer.drain()
    hasty_pair.decode.open(rid + "b", room + 1_000, PROMPT)
    failed = hasty_pair.decode.await_event(Failed, rid + "b")
    assert failed.reason is FailReason.PEER_REFUSED
    assert "draining" in failed.detail
    hasty_pair.prefill.transfer.ready(rid, 0, SOURCE, TOKEN)
    hasty_pair.decode.await_event(WantPages, rid)
    hasty_pair.decode.transfer.grant(rid, TARGET)
    hasty_pair.decode.await_event(Landed, rid)


@pytest.fixture
def committing(hasty_pair: Pair, rid: str, room: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A room that prefill has committed, and whose decode reads nothing more until the event is set."""
    pair_up(hasty_pair, rid, room)
    hasty_pair.prefill.transfer.ready(rid, 0, SOURCE, TOKEN)
    hasty_pair.decode.await_event(WantPages, rid)
    decode, wakes = hasty_pair.decode.transfer._control, threading.Event()
    receive = decode._receive

    def receive_late() -> None:
        if rid in decode.rooms and decode.rooms[rid].state is DecodeState.COMMITTING:
            wakes.wait()
        receive()

    monkeypatch.setattr(decode, "_receive", receive_late)
    hasty_pair.decode.transfer.grant(rid, TARGET)
    hasty_pair.prefill.await_event(Committed, rid)
    yield wakes
    wakes.set()


def test_a_prefill_that_leaves_waits_until_its_last_committed_was_heard(
    hasty_pair: Pair, rid: str, committing: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decode wakes only when prefill is already leaving: COMMITTED is not lost behind the broken connection."""
    prefill = hasty_pair.prefill.transfer._control
    turn = prefill._turn

    def turn_while_leaving() -> None:
        if prefill._stopping.is_set():
            committing.set()
        turn()

    monkeypatch.setattr(prefill, "_turn", turn_while_leaving)
    hasty_pair.prefill.transfer.stop()
    committing.set()
    hasty_pair.decode.await_event(Landed, rid, timeout_s=5)


def test_a_prefill_that_leaves_waits_not_for_ever(hasty_pair: Pair, committing: threading.Event) -> None:
    """A decode that does not wake holds it up for its second only; then it closes its sockets all the same."""
    hasty_pair.prefill.transfer.stop()
    assert hasty_pair.prefill.transfer._control.closed.is_set()
    assert not committing.is_set()


def test_goodbye_fails_the_rooms_at_once(hasty_pair: Pair, rid: str, room: int) -> None:
    """A decode that leaves tells prefill, which does not wait for a clock."""
    pair_up(hasty_pair, rid, room)
    hasty_pair.decode.transfer.stop()
    failed = hasty_pair.prefill.await_event(Failed, rid, timeout_s=3)
    assert failed.reason is FailReason.PEER_GONE


def test_a_contract_mismatch_is_refused_on_both_sides(rid: str, room: int) -> None:
    """Both sides fail the room, name field and values, and neither becomes unfit by it."""
    registry, prefill = Registry(), Prefill(contract=CONTRACT)
    registry.publish(prefill)
    decode = Decode(registry.address, contract=CONTRACT | {"model": "other"})
    try:
        prefill.announce(rid, room, PROMPT)
        decode.open(rid, room, PROMPT)
        failed = decode.await_event(Failed, rid)
        assert (failed.reason, failed.detail) == (
            FailReason.CONTRACT_MISMATCH,
            "model: here 'other', peer 'tiny'",
        )
        assert prefill.await_event(Failed, rid).reason is FailReason.CONTRACT_MISMATCH
        assert decode.transfer.refused_peers() == {"prefill-0": "model: here 'other', peer 'tiny'"}
        assert prefill.transfer.refused_peers() == {"decode-0": "model: here 'tiny', peer 'other'"}
        assert decode.transfer.problems() == prefill.transfer.problems() == []
    finally:
        decode.stop()
        prefill.stop()
        registry.stop()


def test_an_unreachable_registry_fails_the_room_at_once(rid: str, room: int) -> None:
    """Nobody at the bootstrap port: the room fails, and health says that no prefill is reachable."""
    registry = Registry()
    registry.stop()
    decode = Decode(registry.address)
    try:
        decode.open(rid, room, PROMPT)
        failed = decode.await_event(Failed, rid, timeout_s=5)
        assert failed.reason is FailReason.UNREACHABLE
        assert "refused" in failed.detail
        assert registry.address in decode.transfer.problems()[0]
    finally:
        decode.stop()
