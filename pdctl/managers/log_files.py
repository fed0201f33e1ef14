"""Read the log files of instances: the last lines, merged by time, and what comes after."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 1 << 16
STAMP = re.compile(rb"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
"""Routers colour their logs even into files: it hides the stamp, and a pipe or NO_COLOR wants none."""
PARTIAL_MOST_BYTES = 1 << 20
"""A line without end is passed on in pieces of this size."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an instance's log, without its newline."""

    instance: str
    text: str


def last_lines(path: Path, count: int, *, after_byte: int = 0) -> list[str]:
    """Return the last `count` lines, reaching into the rotated file if need be. Reads from the end.

    With `after_byte` only what was written after the file had that size. A file that is absent has no lines.
    """
    if after_byte and path.exists() and path.stat().st_size >= after_byte:
        return [_plain(line) for line in _tail(path, count, after_byte)]
    lines = _tail(path, count)
    if len(lines) < count:
        lines = _tail(rotated(path), count - len(lines)) + lines
    return [_plain(line) for line in lines]


def merged(logs: Mapping[str, Path], count: int) -> list[Line]:
    """Return the last `count` lines of each log in the order of their time stamps.

    A line without a stamp (a traceback) stays behind the one before it; logs without stamps keep their order.
    """
    stamped: list[tuple[str, int, Line]] = []
    for instance, path in logs.items():
        stamp = ""
        for text in last_lines(path, count):
            found = STAMP.match(text.encode())
            if found:
                stamp = f"{found[1].decode()} {found[2].decode().replace(',', '.')}"
            stamped.append((stamp, len(stamped), Line(instance, text)))
    return [line for _, _, line in sorted(stamped, key=lambda entry: entry[:2])]


def rotated(path: Path) -> Path:
    """Return where the shim keeps the lines before the last rotation."""
    return path.with_name(path.name + ".1")


class Follower:
    """Gives the lines that come to one log, across its rotation by copy and truncation."""

    def __init__(self, instance: str, path: Path) -> None:
        self._instance = instance
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._rotated_inode = _inode(rotated(path))
        self._partial = b""
        self._was_short = False

    def poll(self) -> Iterator[Line]:
        """Return the complete lines since the last poll; never waits."""
        rotated_inode = _inode(rotated(self._path))
        if rotated_inode != self._rotated_inode:
            # The copy holds everything up to the truncation, so also what was not read yet.
            self._rotated_inode = rotated_inode
            yield from self._read(rotated(self._path))
            self._offset = 0
        elif self._path.exists() and self._path.stat().st_size < self._offset:
            # Truncated: by the shim, which names the copy a moment later, or (seen twice) by a person.
            if not self._was_short:
                self._was_short = True
                return
            self._offset = 0
        self._was_short = False
        yield from self._read(self._path)

    def _read(self, path: Path) -> Iterator[Line]:
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                while block := file.read(BLOCK_BYTES):
                    self._offset += len(block)
                    *complete, self._partial = (self._partial + block).split(b"\n")
                    for line in complete:
                        yield Line(self._instance, _plain(line))
                    if len(self._partial) > PARTIAL_MOST_BYTES:
                        yield Line(self._instance, _plain(self._partial))
                        self._partial = b""
        except FileNotFoundError:
            return


def _plain(line: bytes) -> str:
    return COLOUR.sub(b"", line).decode(errors="replace")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _tail(path: Path, count: int, after_byte: int = 0) -> list[bytes]:
    """Return the last `count` lines of a file, reading no more blocks from its end than they need."""
    if count <= 0:
        return []
    try:
        with path.open("rb") as file:
            position = file.seek(0, 2)
            data = b""
            while position > after_byte and data.count(b"\n") <= count:
                step = min(BLOCK_BYTES, position - after_byte)
                position -= step
                file.seek(position)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    return data.splitlines()[-count:]
