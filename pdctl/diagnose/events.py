"""Log lines -> typed events and work lines of one instance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from pdctl.dialects.signal_catalogue import BATCHES, ECHO, ENGINE_PATTERNS, QUOTED, ROUTER_PATTERNS
from pdctl.dialects.signals import Batch, Event, Gauge, Pattern
from pdctl.evidence.records import LogLine, Place


class Occurrence(msgspec.Struct, frozen=True):
    """One event."""

    event: Event
    at: datetime | None
    rank: str
    text: str
    place: Place
    groups: dict[str, str]

    def group(self, name: str) -> str:
        """Return a named part of the line, empty when it has none."""
        return self.groups.get(name, "")


class Work(msgspec.Struct, frozen=True):
    """One line printed while the engine worked: the levels at that moment."""

    at: datetime | None
    rank: str
    levels: dict[Gauge, float]
    kind: str
    """Which of the engine's work lines: an engine of both roles prints two."""
    is_step: bool
    """It proves a step; else a periodic report that may say that nothing moved."""
    place: Place


_MASK = re.compile(r"\b[0-9a-f-]{8,}\b|\d+")
_SPELLED = re.compile(r"\\.|\[[^\]]*\]|\{[^}]*\}|\(\?P<\w+>|(\d+)")
"""The numbers that an expression spells out; what stands before the group is not one."""
_PAIR = re.compile(r"([#\w][^:,\[\]]*?): ([^,]+)")
_THROUGHPUT = re.compile(r"throughput: ([\d.]+\d)")
_ECHO = re.compile(ECHO)
_QUOTED = re.compile(QUOTED)


class LogReader:
    """Matches lines against the tables. Lines that differ only in numbers no pattern spells are classified once."""

    def __init__(self, is_router: bool) -> None:
        patterns: Sequence[Pattern] = ROUTER_PATTERNS if is_router else ENGINE_PATTERNS
        self._patterns = [(row.event, row.hint, row.compiled()) for row in patterns]
        self._spelled = frozenset(number for row in patterns for number in _SPELLED.findall(row.regex) if number)
        self._batches = [(row, re.compile(row.regex, re.S)) for row in BATCHES]
        self._seen: dict[str, tuple[int, ...]] = {}

    def read(self, lines: Iterable[LogLine]) -> tuple[list[Occurrence], list[Work]]:
        """Return events and work lines in the order of the lines."""
        occurrences: list[Occurrence] = []
        works: list[Work] = []
        for line in lines:
            work = self._work(line)
            if work is not None:
                works.append(work)
            else:
                occurrences.extend(self._events(line))
        return occurrences, works

    def _events(self, line: LogLine) -> Iterable[Occurrence]:
        message = _own_words(line.message)
        mask = _MASK.sub(lambda number: number[0] if number[0] in self._spelled else "#", message[:400])
        candidates = self._seen.get(mask)
        if candidates is None:
            candidates = self._classify(message)
            self._seen[mask] = candidates
        for index in candidates:
            event, _, regex = self._patterns[index]
            match = regex.match(message)
            if match is not None:
                groups = {name: value for name, value in match.groupdict().items() if value is not None}
                yield Occurrence(event, line.at, line.rank, message, Place(line.file, line.number), groups)

    def _classify(self, message: str) -> tuple[int, ...]:
        if _ECHO.match(message):
            return ()
        found: list[int] = []
        events: set[Event] = set()
        for index, (event, hint, regex) in enumerate(self._patterns):
            if (hint and hint not in message) or event in events:
                continue
            if regex.match(message):
                found.append(index)
                events.add(event)
        return tuple(found)

    def _work(self, line: LogLine) -> Work | None:
        for row, regex in self._batches:
            if row.hint in line.message and (match := regex.match(line.message)):
                levels, is_step = _levels(row, match, line.message)
                return Work(line.at, line.rank, levels, row.hint, is_step, Place(line.file, line.number))
        return None


def _own_words(message: str) -> str:
    """Return the part of a line that the engine says itself; a client's words follow `prompt=` and the like."""
    quoted = _QUOTED.search(message)
    return message[: quoted.start()] if quoted else message


def _levels(row: Batch, match: re.Match[str], message: str) -> tuple[dict[Gauge, float], bool]:
    found = dict(_PAIR.findall(message[match.end() :])) if row.is_pairs else match.groupdict()
    levels: dict[Gauge, float] = {}
    for key, value in found.items():
        gauge = row.keys.get(key.strip(" ."))
        if gauge is None or value is None:
            continue
        number = number_of(value)
        if number is not None:
            levels[gauge] = number / 100 if key == "kv_percent" else number
    if row.is_step:
        return levels, True
    return levels, _moves(message)


def _moves(message: str) -> bool:
    """Return whether a periodic report shows tokens per second above zero."""
    return any((number_of(value) or 0.0) > 0 for value in _THROUGHPUT.findall(message))


def number_of(text: str) -> float | None:
    """Return a number as an engine prints it, `46,592` too; None for what is none."""
    try:
        return float(text.strip().replace(",", ""))
    except ValueError:
        return None
