"""Every state that two sides and a bad network can reach, by the tables that the engine runs.

A state (`explored_state`) holds the two table states of each room, what each side still repeats, the frames in flight,
what the two loops know, and a few ghosts (facts that no side sees, for the checks). What may follow it says
`explored_world`. Here they are visited, all of them or by walks, and it is seen that each has a way to an end.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from explored_state import Broken, State, is_over
from explored_world import World


@dataclass
class Explored:
    """What there is to reach."""

    states: int = 0
    transitions: int = 0
    stuck: State | None = None
    """A state from which no end can be reached."""
    ends: int = 0


def explore(world: World) -> Explored:
    """Visit every state breadth first; raises Broken where a check fails, with the way there."""
    start = world.start()
    numbers: dict[State, int] = {start: 0}
    order: list[State] = [start]
    parents: list[list[int]] = [[]]
    came_from: list[int] = [-1]
    waiting = deque([start])
    found = Explored()
    while waiting:
        state = waiting.popleft()
        here = numbers[state]
        try:
            after = set(world.successors(state))
        except Broken as broken:
            raise Broken(f"{broken}; the way there:\n{_way(order, came_from, here)}") from None
        for child in after:
            found.transitions += 1
            number = numbers.get(child)
            if number is None:
                number = numbers[child] = len(order)
                order.append(child)
                parents.append([])
                came_from.append(here)
                waiting.append(child)
            parents[number].append(here)
    found.states = len(order)
    found.stuck = _stuck(order, parents, found)
    return found


def wander(world: World, seed: int, steps: int) -> set[int]:
    """Walk at random, beginning anew at every end or dead end; return the hashes of the states seen. Raises Broken."""
    chance = random.Random(seed)
    start = state = world.start()
    seen = set[int]()
    for _ in range(steps):
        seen.add(hash(state))
        # Sorted by text: the order of a set of frames differs between processes.
        after = sorted(set(world.successors(state)) - {state}, key=repr)
        state = chance.choice(after) if after and (state == start or not is_over(state)) else start
    return seen


def _stuck(order: list[State], parents: list[list[int]], found: Explored) -> State | None:
    ends = [number for number, state in enumerate(order) if is_over(state)]
    found.ends = len(ends)
    reached = bytearray(len(order))
    waiting = list(ends)
    for number in ends:
        reached[number] = 1
    while waiting:
        for parent in parents[waiting.pop()]:
            if not reached[parent]:
                reached[parent] = 1
                waiting.append(parent)
    return next((order[number] for number, flag in enumerate(reached) if not flag), None)


def _way(order: list[State], came_from: list[int], number: int) -> str:
    way = []
    while number >= 0:
        way.append(str(order[number]))
        number = came_from[number]
    return "\n".join(reversed(way))
