"""The tables of `engine.transfer.protocol.rooms`."""

from __future__ import annotations

import pytest

from engine.transfer.protocol.rooms import (
    DECODE,
    PREFILL,
    Action,
    DecodeEvent,
    DecodeState,
    PrefillEvent,
    PrefillState,
    decode_step,
    prefill_step,
    shown,
)

PAGES_HELD = (PrefillState.PAIRED, PrefillState.READING, PrefillState.COMPUTED)


@pytest.mark.parametrize("state", PrefillState)
@pytest.mark.parametrize("event", PrefillEvent)
def test_every_prefill_pair_has_an_entry(state: PrefillState, event: PrefillEvent) -> None:
    """No event finds a prefill room without an answer."""
    assert prefill_step(state, event).state in set(PrefillState)


@pytest.mark.parametrize("state", DecodeState)
@pytest.mark.parametrize("event", DecodeEvent)
def test_every_decode_pair_has_an_entry(state: DecodeState, event: DecodeEvent) -> None:
    """No event finds a decode room without an answer."""
    assert decode_step(state, event).state in set(DecodeState)


def test_committed_is_said_only_for_held_pages() -> None:
    """COMMITTED is answered where every page is held, and repeated where it was answered before."""
    saying = {
        state for state, row in PREFILL.items() for entry in row.values() if Action.SEND_COMMITTED in entry.actions
    }
    assert saying == {PrefillState.COMPUTED, PrefillState.LANDED}


def test_landed_prefill_room_cannot_fail() -> None:
    """After COMMITTED no event tells the loop of a failure."""
    told = [action for entry in PREFILL[PrefillState.LANDED].values() for action in entry.actions]
    assert Action.TELL_FAILED not in told
    assert Action.PUSH_END not in told


def test_pages_come_back_exactly_once() -> None:
    """Leaving the states that hold pages tells the loop exactly once; staying tells it nothing."""
    for state in PAGES_HELD:
        for event, entry in PREFILL[state].items():
            endings = [a for a in entry.actions if a in (Action.TELL_FAILED, Action.TELL_COMMITTED)]
            assert len(endings) == (entry.state not in PAGES_HELD), (state, event)


def test_decode_lands_only_by_committed() -> None:
    """COMMITTED while asked for is the only way to LANDED."""
    ways = [
        (state, event)
        for state, row in DECODE.items()
        for event, entry in row.items()
        if Action.TELL_LANDED in entry.actions
    ]
    assert ways == [(DecodeState.COMMITTING, DecodeEvent.COMMITTED)]


def test_granted_decode_room_ends_through_the_fence() -> None:
    """A room with reads behind it is never dropped without FENCE, and FENCING only ends by FENCED."""
    for state in (DecodeState.READING, DecodeState.COMMITTING):
        for event, entry in DECODE[state].items():
            assert entry.state is not DecodeState.ABSENT, (state, event)
            if entry.state is DecodeState.FENCING:
                assert entry.actions[-1] is Action.FENCE
                assert Action.TELL_FAILED in entry.actions
    leaving = [e for e, entry in DECODE[DecodeState.FENCING].items() if entry.state is not DecodeState.FENCING]
    assert leaving == [DecodeEvent.FENCED]


def test_decode_does_not_change_its_mind_while_committing() -> None:
    """An abort after COMMIT waits for prefill's answer."""
    entry = decode_step(DecodeState.COMMITTING, DecodeEvent.FAIL)
    assert entry == (DecodeState.COMMITTING, ())


@pytest.mark.parametrize("state", DecodeState)
def test_peer_gone_ends_every_decode_room(state: DecodeState) -> None:
    """No decode room waits for a peer that is gone."""
    after = decode_step(state, DecodeEvent.PEER_GONE).state
    ended = {DecodeState.ABSENT, DecodeState.FENCING, DecodeState.LANDED}
    assert after in ended


@pytest.mark.parametrize("state", PrefillState)
def test_peer_gone_ends_every_paired_prefill_room(state: PrefillState) -> None:
    """No prefill room keeps pages for a peer that is gone."""
    after = prefill_step(state, PrefillEvent.PEER_GONE).state
    waiting_for_the_other_half = {PrefillState.ANNOUNCED, PrefillState.TOMBSTONE}
    assert after in {PrefillState.ABSENT} | waiting_for_the_other_half


@pytest.mark.parametrize("state", DecodeState)
def test_end_frames_are_always_acknowledged_by_decode(state: DecodeState) -> None:
    """FAILED and REFUSED are acknowledged in every state, or prefill would repeat them for ever."""
    assert Action.ACK in decode_step(state, DecodeEvent.PEER_FAILED).actions


@pytest.mark.parametrize("state", PrefillState)
def test_end_frames_are_always_acknowledged_by_prefill(state: PrefillState) -> None:
    """ABORT is acknowledged in every state, or decode would repeat it for ever."""
    assert Action.ACK in prefill_step(state, PrefillEvent.ABORT).actions


def test_every_state_has_a_word_of_the_design() -> None:
    """`/rooms` shows the words of the design, however fine the tables are."""
    words = {"absent", "announced", "paired", "reading", "landed", "failed"}
    assert {shown(state) for state in (*PrefillState, *DecodeState)} == words
