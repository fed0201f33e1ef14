"""Rooms and links as small numbers, and what may follow them as tables: a state takes eight bytes.

A state is link << 48 | room << 24 | room, the smaller room first: two states that differ only in which room is called
the first are one. What a room may become depends on itself and on its `Around`; so it is worked out once for each such
pair by `explored_world`, and looked up for the millions of states that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np

from tests.engine.transfer.explored_state import Around, Broken, Link, Room, State
from tests.engine.transfer.explored_world import Change, World

LINK_BITS, ROOM_BITS = 48, 24
ROOM_MASK = (1 << ROOM_BITS) - 1
DROPS = np.int64(1 << ROOM_BITS)
"""Set in a row's entry: the move drops the agent that both rooms use."""

Numbers = np.ndarray
T = TypeVar("T", Room, Link, Around)
Packed = TypeVar("Packed", Numbers, int)


def rooms_of(states: Packed) -> tuple[Packed, Packed]:
    """Return the numbers of the first and of the second room."""
    return states >> ROOM_BITS & ROOM_MASK, states & ROOM_MASK


class BrokenAt(Exception):
    """A check failed in a move of the states at these positions."""

    def __init__(self, claim: str, positions: Numbers) -> None:
        super().__init__(claim)
        self.positions = positions


class Numbering(dict[T, int]):
    """Gives each record a number when it is first seen."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[T] = []

    def __missing__(self, record: T) -> int:
        number = self[record] = len(self.records)
        self.records.append(record)
        return number


class Column(Generic[T]):
    """A number for each record of a numbering, worked out when it is first asked for."""

    def __init__(self, records: list[T], of: Callable[[T], int]) -> None:
        self._records = records
        self._of = of
        self._values = np.empty(0, dtype=np.int64)

    def __getitem__(self, numbers: Numbers) -> Numbers:
        """Return the values of these records. Raises BrokenAt."""
        if (lacking := len(self._records) - len(self._values)) > 0:
            self._values = np.concatenate((self._values, np.full(lacking + len(self._values), -1)))
        for number in np.unique(numbers[self._values[numbers] < 0]):
            try:
                self._values[number] = self._of(self._records[number])
            except Broken as broken:
                raise BrokenAt(str(broken), np.flatnonzero(numbers == number)) from None
        return np.asarray(self._values[numbers])


class Rows:
    """Lists of numbers by (around, room), end to end in one array."""

    def __init__(self) -> None:
        self._entries = np.empty(1 << 16, dtype=np.int64)
        self._used = 0
        self._bounds = np.full((1, 1, 2), -1, dtype=np.int64)

    def missing(self, around: Numbers, room: Numbers) -> list[tuple[int, int]]:
        """Return each pair that has no row yet."""
        self._grow(int(around.max()) + 1, int(room.max()) + 1)
        lacking = self._bounds[around, room, 0] < 0
        pairs = np.unique(around[lacking] << ROOM_BITS | room[lacking])
        return [(int(pair) >> ROOM_BITS, int(pair) & ROOM_MASK) for pair in pairs]

    def _grow(self, arounds: int, rooms: int) -> None:
        has_arounds, has_rooms = self._bounds.shape[:2]
        if arounds > has_arounds or rooms > has_rooms:
            grown = np.full((max(arounds, has_arounds), max(2 * rooms, has_rooms), 2), -1, dtype=np.int64)
            grown[:has_arounds, :has_rooms] = self._bounds
            self._bounds = grown

    def add(self, around: int, room: int, entries: list[int]) -> None:
        """Write one row."""
        end = self._used + len(entries)
        while end > len(self._entries):
            self._entries = np.concatenate((self._entries, np.empty_like(self._entries)))
        self._entries[self._used : end] = entries
        self._bounds[around, room] = self._used, end
        self._used = end

    def __getitem__(self, where: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        """Return the entries of all these rows, and the position in `where` that each one belongs to."""
        begin, end = np.moveaxis(self._bounds[where], -1, 0)
        lengths = end - begin
        position = np.repeat(np.arange(len(lengths)), lengths)
        offset = np.arange(len(position)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self._entries[begin[position] + offset], position


class Numbered:
    """A world in numbers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rooms: Numbering[Room] = Numbering()
        self.links: Numbering[Link] = Numbering()
        self.arounds: Numbering[Around] = Numbering()
        self.rows = Rows()
        self._changes: dict[Change, Column[Room]] = {}
        self._dropped = Column(self.rooms.records, lambda room: self.rooms[world.dropped(room)])
        self._around: dict[int, Column[Room]] = {}

    def pack(self, link: int | Numbers, first: Numbers, second: Numbers) -> Numbers:
        """Return states."""
        low, high = np.minimum(first, second), np.maximum(first, second)
        return np.asarray(np.int64(link) << LINK_BITS | low << ROOM_BITS | high)

    def unpack(self, state: int) -> State:
        """Return a state in words."""
        first, second = (self.rooms.records[room] for room in rooms_of(state))
        return State(self.links.records[state >> LINK_BITS], (first, second))

    def start(self) -> Numbers:
        """Return the first state."""
        link, (first, second) = self.world.start()
        return self.pack(self.links[link], np.array([self.rooms[first]]), np.array([self.rooms[second]]))

    def by_link(self, states: Numbers) -> Iterator[tuple[int, slice]]:
        """Cut sorted states into the runs that have the same link."""
        cuts = np.searchsorted(states, np.arange(len(self.links.records) + 1) << LINK_BITS)
        for link, (begin, end) in enumerate(pairwise(map(int, cuts))):
            if begin < end:
                yield link, slice(begin, end)

    def around(self, link: int, other: Numbers) -> Numbers:
        """Return the number of what each of these rooms is to the other one."""
        column = self._around.get(link)
        if column is None:
            record, world = self.links.records[link], self.world
            column = Column(self.rooms.records, lambda room: self.arounds[world.around(record, room)])
            self._around[link] = column
        return column[other]

    def followed(self, around: Numbers, room: Numbers) -> tuple[Numbers, Numbers]:
        """Return what rooms may become (`DROPS` set or not), with the position of each. Raises BrokenAt."""
        for each_around, each_room in self.rows.missing(around, room):
            record, surroundings = self.rooms.records[each_room], self.arounds.records[each_around]
            try:
                alone = {self.rooms[after] for after in self.world.moves(record, surroundings)} - {each_room}
                drops = {self.rooms[after] | int(DROPS) for after in self.world.drops(record, surroundings)}
            except Broken as broken:
                raise BrokenAt(str(broken), np.flatnonzero((around == each_around) & (room == each_room))) from None
            self.rows.add(each_around, each_room, sorted(alone | drops))
        return self.rows[around, room]

    def dropped(self, room: Numbers) -> Numbers:
        """Return what becomes of rooms when the agent is dropped for the other one."""
        return self._dropped[room]

    def changed(self, rooms: Numbers, change: Change) -> Numbers:
        """Return what a move of the link makes of rooms. Raises BrokenAt."""
        column = self._changes.get(change)
        if column is None:
            column = Column(self.rooms.records, lambda room: self.rooms[self.world.changed(room, change)])
            self._changes[change] = column
        return column[rooms]
