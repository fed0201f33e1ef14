"""Proof that an end can be reached from every state, without a search for each.

From any state the sides may go on and notice what broke, and the network may lose what is in flight: then the link is
calm and nothing is under way. If now one room can end by itself while the other stands still, and then the other one,
the state has a way to an end. Each of these steps is a move of the world, so the way is one of the world's; it depends
on little, so it is found once for millions of states.

No client leaves on that way and no request's deadline passes: what a deadline alone would end counts as stuck. So two
full pools that wait for each other are found, too (invariant 4).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tests.engine.transfer.explored_numbers import ROOM_BITS, ROOM_MASK, Column, Numbered, Numbers, rooms_of
from tests.engine.transfer.explored_state import OVER, Link, Room
from tests.engine.transfer.explored_world import Change


class Ends:
    """Which states are ends, and which have one before them."""

    def __init__(self, numbered: Numbered) -> None:
        self._numbered = numbered
        self._over = Column(numbered.rooms.records, lambda room: int(room.is_over))
        self._quiet = Column(numbered.rooms.records, lambda room: numbered.rooms[room._replace(net=frozenset())])
        self._ending: dict[tuple[int, int], bool] = {}
        """(around, room) -> whether it can end by itself."""

    def count(self, states: Numbers) -> int:
        """Return how many of these sorted states are ends."""
        found = 0
        for link, run in self._numbered.by_link(states):
            if self._numbered.links.records[link].is_calm:
                first, second = rooms_of(states[run])
                found += np.count_nonzero(self._over[first] & self._over[second])
        return found

    def first_stuck(self, states: Numbers) -> int | None:
        """Return a state from which no end was found, or None."""
        for link, run in self._numbered.by_link(states):
            first, second = rooms_of(states[run])
            calm, changes = self._calming(self._numbered.links.records[link])
            for change in changes:
                first, second = (self._numbered.changed(room, change) for room in (first, second))
            pairs, where = np.unique(self._quiet[first] << ROOM_BITS | self._quiet[second], return_inverse=True)
            ends = np.array([self._both_end(calm, *map(int, rooms_of(pair))) for pair in pairs])
            if not ends.all():
                return int(states[run][np.argmin(ends[where])])
        return None

    def _calming(self, link: Link) -> tuple[Link, list[Change]]:
        """Return what becomes of a link when both sides go on and notice what broke."""
        changes = []
        while not link.is_calm:
            link, change = next(
                (after, change)
                for after, change in self._numbered.world.link_moves(link)
                if not change.breaks and after.stops == link.stops
            )
            changes.append(change)
        return link, changes

    def _both_end(self, link: Link, first: int, second: int) -> bool:
        return self._end_in_turn(link, first, second) or self._end_in_turn(link, second, first)

    def _end_in_turn(self, link: Link, sooner: int, later: int) -> bool:
        """Return whether one room can end beside the other as it stands, and then the other, agent dropped or not."""
        rooms = self._numbered.rooms.records
        dropped = self._numbered.rooms[self._numbered.world.dropped(rooms[later])]
        return self._ends_beside(link, rooms[later], sooner) and all(
            self._ends_beside(link, OVER, room) for room in {later, dropped}
        )

    def _ends_beside(self, link: Link, other: Room, room: int) -> bool:
        around = self._numbered.arounds[self._numbered.world.around(link, other)._replace(is_patient=True)]
        known = self._ending.get((around, room))
        if known is None:
            known = self._ending[around, room] = self._search(around, room)
        return known

    def _search(self, around: int, room: int) -> bool:
        """Look for an end breadth first; every room on the way to one is noted as ending, too."""
        before = {room: room}
        waiting = deque([room])
        while waiting:
            here = waiting.popleft()
            if self._numbered.rooms.records[here].is_over or self._ending.get((around, here)):
                while here != room:
                    self._ending[around, here] = True
                    here = before[here]
                return True
            after, _ = self._numbered.followed(np.array([around]), np.array([here]))
            for number in map(int, after & ROOM_MASK):
                if number not in before:
                    before[number] = here
                    waiting.append(number)
        return False
