"""All states of the real tables under a bad network, a restart and a stop; and proof that the checks can fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from engine.transfer.protocol.rooms import (
    DECODE,
    PREFILL,
    Action,
    DecodeEvent,
    DecodeState,
    Entry,
    PrefillEvent,
    PrefillState,
)
from tests.engine.transfer.exploration import Search, explore, wander
from tests.engine.transfer.explored_decode import DecodeHalf
from tests.engine.transfer.explored_state import NOWHERE, Bounds, Broken, Room, State
from tests.engine.transfer.explored_world import World

P, D, PE, DE, A = PrefillState, DecodeState, PrefillEvent, DecodeEvent, Action
SMALL = Bounds(chunks=1, in_flight=1)
PAIR = Bounds(rooms=2, chunks=1, in_flight=1, restarts=0, stops=0)
ONE_PROMPT = replace(PAIR, prefill_pool=1, decode_pool=1)
"""Each pool holds the pages of one room."""


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(chunks=1, in_flight=2),
        Bounds(chunks=2, in_flight=1),
        Bounds(chunks=1, in_flight=3, restarts=0, stops=0),
        PAIR,
        replace(PAIR, decode_pool=1),
        replace(ONE_PROMPT, restarts=1),
    ],
    ids=str,
)
def test_no_reachable_state_breaks_an_invariant(bounds: Bounds) -> None:
    """No page free under a read, no token from uncommitted KV, no COMMITTED for freed pages, no leak, always an end."""
    found = explore(World(bounds))
    print(f"{bounds}: {found}")
    assert found.stuck == []
    assert found.ends > 0


def test_every_successor_is_found() -> None:
    """The search in numbers visits exactly the states, either room first, that a plain one in records visits."""
    world = World(replace(ONE_PROMPT, in_flight=0, restarts=1, stops=1))
    seen, waiting = {world.start()}, [world.start()]
    while waiting:
        new = set(world.successors(waiting.pop())) - seen
        seen |= new
        waiting += new
    search = Search(world)
    search.run()
    found = [search.numbered.unpack(int(state)) for state in search.seen]
    assert len(found) > 1_000
    assert {(state.link, frozenset(state.rooms)) for state in found} == {
        (state.link, frozenset(state.rooms)) for state in seen
    }


@pytest.mark.parametrize("seed", range(3))
def test_two_rooms_on_long_ways(seed: int) -> None:
    """Two rooms of two chunks with three frames in flight: seeded walks break no invariant either."""
    seen = wander(World(Bounds(rooms=2, chunks=2, decode_pool=1)), seed, steps=8_000)
    print(f"seed {seed}: {len(seen)} different states")
    assert len(seen) > 3_000


def changed(table: Mapping[Any, Mapping[Any, Entry]], state: Any, event: Any, entry: Entry) -> Any:
    """Return a table in which one entry is another."""
    return {**table, state: {**table[state], event: entry}}


def test_committed_for_freed_pages_would_be_found() -> None:
    """A prefill that answers COMMIT with COMMITTED after it failed the room."""
    table = changed(PREFILL, P.FAILED, PE.COMMIT, Entry(P.FAILED, (A.SEND_COMMITTED,)))
    with pytest.raises(Broken, match="COMMITTED for pages that were freed"):
        explore(World(SMALL, prefill=table))


def test_a_missing_fence_would_be_found() -> None:
    """A decode that gives pages back at an abort without waiting for its READs."""
    table = changed(DECODE, D.READING, DE.FAIL, Entry(D.ABSENT, (A.TELL_FAILED, A.PUSH_END, A.TELL_FENCED)))
    with pytest.raises(Broken, match="free while a read into it is possible"):
        explore(World(SMALL, decode=table))


def test_a_token_without_commit_would_be_found() -> None:
    """A decode that goes on as soon as everything was read."""
    table = changed(DECODE, D.READING, DE.ALL_READ, Entry(D.LANDED, (A.TELL_LANDED,)))
    with pytest.raises(Broken, match="token from KV that was not COMMITTED"):
        explore(World(SMALL, decode=table))


def test_a_leak_would_be_found() -> None:
    """A prefill that forgets the room of a lost peer without telling its loop."""
    table = changed(PREFILL, P.COMPUTED, PE.PEER_GONE, Entry(P.ABSENT))
    with pytest.raises(Broken, match="leak"):
        explore(World(SMALL, prefill=table))


@pytest.mark.parametrize(
    ("state", "event"),
    [(D.COMMITTING, DE.PEER_GONE), (D.FENCING, DE.FENCED), (D.OFFERED, DE.PEER_GONE)],
)
def test_a_room_that_waits_for_ever_would_be_found(state: DecodeState, event: DecodeEvent) -> None:
    """A decode that takes no notice of what should end its room. (OFFERED has its pairing clock besides.)"""
    table = changed(DECODE, state, event, Entry(state))
    stuck = explore(World(SMALL, decode=table)).stuck
    assert (stuck == []) == (state is D.OFFERED)


def test_the_way_to_a_stuck_room_is_told() -> None:
    """A prefill that passes over the ACK of an end that it told before the halves met: it would wait for COMMIT."""
    table = changed(PREFILL, P.COMPUTED, PE.ACK, Entry(P.COMPUTED))
    world = World(SMALL, prefill=table)
    way = explore(world).stuck
    assert way[0] == world.start()
    for state, after in pairwise(way):
        assert {after, State(after.link, after.rooms[::-1])} & set(world.successors(state))
    assert any(room.prefill is P.COMPUTED and room.decode is D.ABSENT for room in way[-1].rooms)


@pytest.mark.parametrize(("bounds", "is_stuck"), [(ONE_PROMPT, True), (replace(PAIR, decode_pool=1), False)])
def test_two_full_pools_that_wait_for_each_other_would_be_found(bounds: Bounds, is_stuck: bool) -> None:
    """A decode that takes pages when paired, before its prefill has any: each room holds what the other needs."""
    table = changed(DECODE, D.OFFERED, DE.PAIR_ACK, Entry(D.WANTING, (A.WANT_PAGES,)))
    assert (explore(World(bounds, decode=table)).stuck != []) == is_stuck


class HastyFence(World):
    """A decode whose fence, when it drops the agent, answers for the other room before the agent is gone."""

    def dropped(self, room: Room) -> Room:
        if room.decode is not D.FENCING:
            return room
        return DecodeHalf(self.bounds, DECODE, NOWHERE).on(room, DE.FENCED)  # type: ignore[arg-type]


def test_a_fence_that_answers_for_another_room_would_be_found() -> None:
    """Its pages would be free while its own READs run on."""
    with pytest.raises(Broken, match="free while a read into it is possible"):
        explore(HastyFence(PAIR))
