"""The long form of the exploration: every state of one room with much network, and of two rooms that share theirs."""

from __future__ import annotations

import resource
import time

from tests.engine.transfer.exploration import explore
from tests.engine.transfer.explored_state import Bounds
from tests.engine.transfer.explored_world import World

BOUNDS = (
    Bounds(chunks=1),
    Bounds(rooms=2, chunks=1, in_flight=1),
    Bounds(rooms=2, chunks=1, in_flight=1, decode_pool=1),
    Bounds(rooms=2, chunks=1, in_flight=1, prefill_pool=1, decode_pool=1),
    Bounds(rooms=2, chunks=1, in_flight=2, restarts=0, stops=0),
)
"""Pools are counted in rooms whose pages fit. As much as ten minutes and 8 GB hold; the last one is most of it."""


def explore_states() -> int:
    """Explore each of the bounds and print a table row. 0: no check failed, and each state has a way to an end."""
    print("| rooms | in flight | restarts | stops | pools | states | transitions | ends | s | GB so far | stuck |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    stuck = 0
    for bounds in BOUNDS:
        started = time.monotonic()
        found = explore(World(bounds))
        stuck += bool(found.stuck)
        memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"| {bounds.rooms} | {bounds.in_flight} | {bounds.restarts} | {bounds.stops} "
            f"| {bounds.prefill_pool}, {bounds.decode_pool} | {found.states:,} | {found.transitions:,} "
            f"| {found.ends:,} | {time.monotonic() - started:.0f} | {memory_gb:.1f} | {bool(found.stuck)} |",
            flush=True,
        )
        for state in found.stuck:
            print(state)
    return int(stuck > 0)
