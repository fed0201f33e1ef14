"""Collector: what one instance printed. The end of its log as it is, and from before that only telling lines.

`log.txt` holds all of the last few MB across rotated files; `covers_since` is the time of its first complete line.
Lines by `markers` from the part before stand in `log.earlier.txt`. The searching is `grep`'s: a million lines take as
long as grep takes, in flat memory, in a child with a deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from pdctl.collect.context import Context
from pdctl.collect.incident import local_utc_offset
from pdctl.collect.journal import take_journal
from pdctl.collect.markers import MARKERS
from pdctl.collect.records import Status, Taken, now
from pdctl.collect.remote_logs import take_remote
from pdctl.collect.target import Target
from pdctl.evidence.loglines import parse_log
from pdctl.hosts import child
from pdctl.hosts.host import LOCAL

LOG, EARLIER = "log.txt", "log.earlier.txt"
FILES = (LOG, EARLIER)
TAIL_BYTES = 4 << 20
FLEET_TAIL_BYTES = 256 << 10
EARLIER_BYTES = 1 << 20
GREP_S = 10.0
ROTATIONS = 3


class Piece(msgspec.Struct, frozen=True):
    """A part of a file, in bytes."""

    path: Path
    start: int
    end: int


async def take(target: Target, context: Context) -> list[Taken]:
    """Read the log files, else the unit's journal."""
    if target.log_files:
        tail_bytes = FLEET_TAIL_BYTES if context.is_fleet else TAIL_BYTES
        async with context.log_slots:
            if context.host.name != LOCAL:
                return await take_remote(target.log_files[-1], context, tail_bytes)
            return await take_files(target.log_files, context, tail_bytes)
    if target.unit:
        return await take_journal(target.unit, context)
    why = target.why_no_pid if target.pid is None else "it prints to a pipe or terminal that pdctl cannot read"
    return [Taken(name=LOG, status=Status.ABSENT, error=why)]


async def take_files(paths: Sequence[Path], context: Context, tail_bytes: int = TAIL_BYTES) -> list[Taken]:
    """Read the end of a log and of its rotated files (oldest first), and search what lies before."""
    before, content = _read_end(paths, tail_bytes)
    is_cut = bool(before)
    if is_cut:
        content = _from_next_line(content)
    taken = [Taken(name=LOG, content=content, truncated=is_cut, covers_since=first_time(content))]
    if before:
        taken.append(await _search(before, context))
    return taken


def split(paths: Sequence[Path], tail_bytes: int) -> tuple[list[Piece], list[Piece]]:
    """Return what lies before the last `tail_bytes` of all files together, and those; each oldest first."""
    before: list[Piece] = []
    tail: list[Piece] = []
    left = tail_bytes
    for path in reversed(paths):
        try:
            size = path.stat().st_size
        except OSError:
            continue
        share = min(size, left)
        left -= share
        if share:
            tail.insert(0, Piece(path, size - share, size))
        if size > share:
            before.insert(0, Piece(path, 0, size - share))
    return before, tail


def _read_end(paths: Sequence[Path], tail_bytes: int) -> tuple[list[Piece], bytes]:
    """Return what lies before the tail, and the tail's content; read anew where a rotation fell in between."""
    for _ in range(ROTATIONS):
        states = [_state(path) for path in paths]
        before, tail = split(paths, tail_bytes)
        content = b"".join(_read(piece) for piece in tail)
        if all(_is_older(old, _state(path)) for old, path in zip(states, paths, strict=True)):
            break
    return before, content


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size


def _is_older(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Return whether the file is the same and has at most grown."""
    return before[0] == after[0] and before[1] <= after[1]


def _read(piece: Piece) -> bytes:
    try:
        with piece.path.open("rb") as file:
            file.seek(piece.start)
            return file.read(piece.end - piece.start)
    except OSError:
        # Rotated away between the two looks.
        return b""


def first_time(content: bytes) -> datetime | None:
    """Return the time that the first lines print, in UTC; None where they print none."""
    lines, _ = parse_log(content[:65536], LOG, now())
    return next((line.at - local_utc_offset() for line in lines if line.at is not None), None)


async def _search(pieces: Sequence[Piece], context: Context) -> Taken:
    words = [word for marker in MARKERS for word in ("-e", marker)]
    found: list[bytes] = []
    problem: child.Child | None = None
    is_begun = False
    for piece in pieces:
        done = await context.host.run(
            ["grep", "-a", "-b", "-F", *words, str(piece.path)],
            deadline_s=context.deadline.at_most(GREP_S),
            most_bytes=EARLIER_BYTES,
            keep=child.Keep.TAIL,
            # In the C locale grep compares bytes; in UTF-8 it is ten times slower.
            env={"LC_ALL": "C"},
        )
        lines = _from_next_line(done.stdout) if done.truncated else done.stdout
        # A rotation in mid-line: what goes on here may be half a key.
        found.append(_lines_between(1 if is_begun else 0, piece.end, lines))
        is_begun = not _read(Piece(piece.path, piece.end - 1, piece.end)).endswith(b"\n")
        # grep says 1 where no line matches.
        if done.end is not child.End.EXITED or done.code not in (0, 1):
            problem = done
    content = _whole_lines(b"".join(found))
    if problem is None:
        return Taken(name=EARLIER, content=content, truncated=True)
    status = Status.TIMEOUT if problem.end is child.End.TIMEOUT else Status.FAILED
    return Taken(name=EARLIER, content=content or None, status=status, error=problem.describe(), truncated=True)


def _lines_between(start: int, end: int, numbered: bytes) -> bytes:
    """Return the lines that begin from one offset up to another; grep has put each line's own before: `OFFSET:line`."""
    kept: list[bytes] = []
    for line in numbered.split(b"\n"):
        offset, _, text = line.partition(b":")
        if offset.isdigit() and start <= int(offset) < end:
            kept.append(text + b"\n")
    return b"".join(kept)


def _whole_lines(content: bytes) -> bytes:
    """Return the last lines that fit."""
    if len(content) <= EARLIER_BYTES:
        return content
    return _from_next_line(content[-EARLIER_BYTES:])


def _from_next_line(content: bytes) -> bytes:
    """Return what follows the first end of a line.

    A cut falls somewhere in a line: half a line would be read as another one, and half a key not be known as a key.
    """
    # Progress bars end their lines by \r alone.
    end = content.find(b"\n")
    end = content.find(b"\r") if end < 0 else end
    return content[end + 1 :] if end >= 0 else b""
