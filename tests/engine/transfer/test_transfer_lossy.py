"""Correctness never relies on delivery: frames are lost, doubled and reordered on purpose, by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.transfer.control.channel import DecodeChannel, PrefillChannel, Sent
from engine.transfer.interface import Committed, Failed, FailReason, Fenced, Landed, Paired, WantPages
from engine.transfer.protocol import frames
from engine.transfer.protocol.rooms import PrefillState
from tests.engine.transfer.pairs import Pair, make_pair
from tests.engine.transfer.transfer_sides import TOKEN, Decode, Prefill, Registry, eventually

PROMPT = list(range(8))
ROOMS = 24
LOSE, REPEAT, HOLD = 0.2, 0.15, 0.1


def unreliable(send: Callable[..., Sent], chance: random.Random) -> Callable[..., Sent]:
    """Wrap a channel's `send`; a held frame leaves after the next one of the same channel."""
    held: list[tuple[Any, ...]] = []

    def send_some(*arguments: Any) -> Sent:
        draw = chance.random()
        if draw < LOSE:
            return Sent.SENT
        if draw < LOSE + HOLD and not held:
            held.append(arguments)
            return Sent.SENT
        result = send(*arguments)
        if draw > 1 - REPEAT:
            send(*arguments)
        while held:
            send(*held.pop())
        return result

    return send_some


@pytest.fixture(params=[1, 2])
def lossy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    seed = int(request.param)
    monkeypatch.setattr(PrefillChannel, "send", unreliable(PrefillChannel.send, random.Random(seed)))
    monkeypatch.setattr(DecodeChannel, "send", unreliable(DecodeChannel.send, random.Random(-seed)))
    made = make_pair()
    yield made
    made.stop()


def drive(pair: Pair, chance: random.Random) -> None:
    """Play both loops until every room has ended on both sides; abort about one in three."""
    prefill, decode = pair.prefill, pair.decode
    done: dict[object, int] = {prefill: 0, decode: 0}
    fences = 0

    def turn() -> bool:
        nonlocal fences
        for event in prefill.transfer.poll():
            prefill.seen.append(event)
            number = int(event.rid)
            if isinstance(event, Paired):
                prefill.fill([2 * number, 2 * number + 1], seed=number)
                prefill.transfer.ready(event.rid, 0, [2 * number], None)
                prefill.transfer.ready(event.rid, 1, [2 * number + 1], TOKEN)
                if chance.random() < 0.15:
                    prefill.transfer.fail(event.rid, FailReason.ABORTED, "prefill")
            done[prefill] += isinstance(event, Committed | Failed)
        for event in decode.transfer.poll():
            decode.seen.append(event)
            number = int(event.rid)
            if isinstance(event, WantPages):
                decode.transfer.grant(event.rid, [2 * number, 2 * number + 1])
                fences += 1
                if chance.random() < 0.25:
                    decode.transfer.fail(event.rid, FailReason.ABORTED, "decode")
            done[decode] += isinstance(event, Landed | Failed)
            fences -= isinstance(event, Landed | Fenced)
        return done[prefill] == done[decode] == ROOMS and fences == 0

    eventually(turn, timeout_s=40)


def test_both_sides_agree_whatever_is_lost(lossy: Pair) -> None:
    """Every room ends exactly once on each side and alike; what landed is right; nothing is remembered."""
    for number in range(ROOMS):
        lossy.prefill.announce(str(number), number + 1, PROMPT)
        lossy.decode.open(str(number), number + 1, PROMPT)
    drive(lossy, random.Random(5))
    for number in range(ROOMS):
        there = [type(e) for e in lossy.prefill.events_of(str(number)) if isinstance(e, Committed | Failed)]
        here = [type(e) for e in lossy.decode.events_of(str(number)) if isinstance(e, Landed | Failed)]
        assert (there, here) in (([Committed], [Landed]), ([Failed], [Failed])), number
        if here == [Landed]:
            assert lossy.decode.holds([2 * number, 2 * number + 1], seed=number)
    rooms = lossy.prefill.transfer._control.rooms
    unpaired = (PrefillState.PARKED, PrefillState.TOMBSTONE)
    eventually(lambda: all(room.state in unpaired for room in list(rooms.values())))
    eventually(lambda: not lossy.decode.transfer._control.rooms)


@pytest.fixture
def forgetful() -> Iterator[Pair]:
    """A prefill that forgets an OFFER without a leg after a second, and a decode that is patient."""
    registry, prefill = Registry(), Prefill(pairing_timeout_s=1.0)
    registry.publish(prefill)
    made = Pair(registry, prefill, Decode(registry.address))
    yield made
    made.stop()


def test_an_end_that_is_heard_after_the_room_began_anew_ends_both_sides(
    forgetful: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FAILED of a forgotten room ends decode's; its ACK ends the room that prefill has by that number since."""
    prefill, decode = forgetful.prefill, forgetful.decode
    control = prefill.transfer._control
    send, lost = control.peers.send, []

    def lose_failed(peer: object, frame: frames.Frame) -> object:
        return lost.append(frame) if isinstance(frame, frames.Failed) else send(peer, frame)

    monkeypatch.setattr(control.peers, "send", lose_failed)
    decode.open("late", 1, PROMPT)
    eventually(lambda: 1 in control.rooms)
    first = control.rooms[1]

    def has_begun_anew() -> bool:
        """Parked, refused in vain, forgotten: the OFFER that comes again may find its room gone for no time at all."""
        room = control.rooms.get(1)
        return room is not None and room is not first and room.state is PrefillState.PARKED

    eventually(has_begun_anew)
    prefill.announce("late", 1, PROMPT)
    prefill.await_event(Paired, "late")
    prefill.transfer.ready("late", 0, [0, 1], TOKEN)
    decode.await_event(WantPages, "late")
    monkeypatch.setattr(control.peers, "send", send)
    assert decode.await_event(Failed, "late").reason is FailReason.PAIRING_TIMEOUT
    ended = prefill.await_event(Failed, "late")
    assert (ended.reason, ended.detail) == (
        FailReason.PEER_GONE,
        "decode-0 has heard FAILED about the room and is through with it",
    )
