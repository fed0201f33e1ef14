"""All states of the real tables under a bad network, a restart and a stop; and proof that the checks can fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from exploration import explore, wander
from explored_state import Bounds, Broken
from explored_world import World

from engine.transfer.rooms import DECODE, PREFILL, Action, DecodeEvent, DecodeState, Entry, PrefillEvent, PrefillState

P, D, PE, DE, A = PrefillState, DecodeState, PrefillEvent, DecodeEvent, Action
SMALL = Bounds(chunks=1, in_flight=1)


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(chunks=1, in_flight=2),
        Bounds(chunks=2, in_flight=1),
        Bounds(chunks=1, in_flight=3, restarts=0, stops=0),
    ],
    ids=str,
)
def test_no_reachable_state_breaks_an_invariant(bounds: Bounds) -> None:
    """No page free under a read, no token from uncommitted KV, no COMMITTED for freed pages, no leak, always an end."""
    found = explore(World(bounds))
    print(f"{bounds}: {found.states} states, {found.transitions} transitions, {found.ends} ends")
    assert found.stuck is None, found.stuck
    assert found.ends > 0


@pytest.mark.parametrize("seed", range(3))
def test_two_rooms_on_long_ways(seed: int) -> None:
    """Two rooms of two chunks that share a connection: seeded walks break no invariant either."""
    seen = wander(World(Bounds(rooms=2, chunks=2)), seed, steps=8_000)
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
    assert (stuck is None) == (state is D.OFFERED)
