"""Every state that two sides and a bad network can reach, by the tables that the engine runs.

What a state holds stands in `explored_state`, what may follow it in `explored_world`. Here all of them are visited, or
some by walks, and it is seen that each has a way to an end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.engine.transfer.explored_ends import Ends
from tests.engine.transfer.explored_numbers import DROPS, ROOM_MASK, BrokenAt, Numbered, Numbers, rooms_of
from tests.engine.transfer.explored_state import Broken, State
from tests.engine.transfer.explored_world import World

CHUNK = 1 << 18
"""States whose successors are looked up together: half a gigabyte."""


@dataclass(frozen=True)
class Explored:
    """What there is to reach."""

    states: int
    transitions: int
    ends: int
    stuck: list[State]
    """A shortest way to a state from which no end was found; empty: there is none."""


def explore(world: World) -> Explored:
    """Visit every state breadth first; raises Broken where a check fails, with the way there."""
    search = Search(world)
    search.run()
    ends = Ends(search.numbered)
    stuck = ends.first_stuck(search.seen)
    return Explored(
        states=len(search.seen),
        transitions=search.transitions,
        ends=ends.count(search.seen),
        stuck=[] if stuck is None else search.way(stuck),
    )


class Search:
    """A breadth-first search; `seen` has all states found, sorted."""

    def __init__(self, world: World) -> None:
        self.numbered = Numbered(world)
        self.levels = [self.numbered.start()]
        """Sorted, the states that so many moves lead to and no fewer."""
        self.seen = self.levels[0]
        self.transitions = 0

    def run(self) -> None:
        """Go on until nothing is new. Raises Broken."""
        while len(self.levels[-1]):
            new = [self._new(part) for part in _parts(self.levels[-1])]
            self.levels.append(np.unique(np.concatenate(new)))
            # Two sorted runs: a merge.
            self.seen = np.sort(np.concatenate((self.seen, self.levels[-1])), kind="stable")

    def _new(self, states: Numbers) -> Numbers:
        try:
            after = [successors for successors, _ in self._after(states)]
        except BrokenAt as broken:
            way = "\n".join(map(str, self.way(int(states[broken.positions[0]]))))
            raise Broken(f"{broken}; the way there:\n{way}") from None
        self.transitions += sum(map(len, after))
        found = np.unique(np.concatenate(after))
        places = np.minimum(np.searchsorted(self.seen, found), len(self.seen) - 1)
        return np.asarray(found[self.seen[places] != found])

    def _after(self, states: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield what may follow sorted states, with the position of the state before. Raises BrokenAt."""
        for link, run in self.numbered.by_link(states):
            first, second = rooms_of(states[run])
            try:
                for after, position in self._after_on(link, first, second):
                    yield after, position + run.start
            except BrokenAt as broken:
                raise BrokenAt(str(broken), broken.positions + run.start) from None

    def _after_on(self, link: int, first: Numbers, second: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        numbered = self.numbered
        everywhere = np.arange(len(first))
        for moved, change in numbered.world.link_moves(numbered.links.records[link]):
            rooms = (numbered.changed(room, change) for room in (first, second))
            yield numbered.pack(numbered.links[moved], *rooms), everywhere
        for own, other in ((first, second), (second, first)):
            after, position = numbered.followed(numbered.around(link, other), own)
            beside, drops = other[position], after >= DROPS
            beside[drops] = numbered.dropped(beside[drops])
            yield numbered.pack(link, after & ROOM_MASK, beside), position

    def way(self, state: int) -> list[State]:
        """Return one of the shortest ways to a state that was seen."""
        way = [state]
        depth = next(depth for depth, level in enumerate(self.levels) if state in level)
        for level in reversed(self.levels[:depth]):
            way.append(next(before for part in _parts(level) for before in self._before(part, way[-1])))
        return [self.numbered.unpack(each) for each in reversed(way)]

    def _before(self, states: Numbers, state: int) -> Iterator[int]:
        for after, position in self._after(states):
            yield from map(int, states[position[after == state][:1]])


def _parts(states: Numbers) -> Iterator[Numbers]:
    return (states[begin : begin + CHUNK] for begin in range(0, len(states), CHUNK))


def wander(world: World, seed: int, steps: int) -> set[int]:
    """Walk at random, beginning anew at every end or dead end; return the hashes of the states seen. Raises Broken."""
    chance = random.Random(seed)
    start = state = world.start()
    seen = set[int]()
    for _ in range(steps):
        seen.add(hash(state))
        # Sorted by text: the order of a set of frames differs between processes.
        after = sorted(set(world.successors(state)) - {state}, key=repr)
        is_over = state.link.is_calm and all(room.is_over for room in state.rooms)
        state = chance.choice(after) if after and (state == start or not is_over) else start
    return seen
