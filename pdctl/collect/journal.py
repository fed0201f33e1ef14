"""Collector: what a systemd unit printed, from the journal.

Traps, each seen with systemd 252: `--grep` with a pattern in lower case ignores case unless told otherwise; JSON turns
a field above 4096 bytes into null without `--all`; a message with colours or bytes that are no UTF-8 comes as a list
of numbers; `-n` beside `--since` gives the first lines, so the end is read backwards (`-r`). Priorities do not help:
what a unit prints to stdout or stderr has 6, tracebacks too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from pdctl.collect.context import Context
from pdctl.collect.markers import MARKERS
from pdctl.collect.records import Status, Taken
from pdctl.hosts import child

LINES = 20_000
EARLIER_LINES = 3_000
WINDOW_S = 24 * 3600
JOURNAL_S = 10.0
OUTPUT_MOST_BYTES = 32 << 20
FIELDS = "MESSAGE,_SYSTEMD_INVOCATION_ID"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One journal entry."""

    MESSAGE: str | list[int] | None = None
    REALTIME: str = msgspec.field(default="0", name="__REALTIME_TIMESTAMP")

    @property
    def message(self) -> bytes:
        """Return the bytes that were printed; several lines are possible."""
        if isinstance(self.MESSAGE, list):
            return bytes(byte & 0xFF for byte in self.MESSAGE)
        return (self.MESSAGE or "").encode("utf-8", "replace")

    @property
    def at(self) -> datetime:
        """Return when the journal received it."""
        return datetime.fromtimestamp(int(self.REALTIME) / 1e6, UTC)


async def take_journal(unit: str, context: Context, *, source: tuple[str, ...] = ()) -> list[Taken]:
    """Read the end of a unit's journal, and telling lines of the last day from before that.

    `source` names other journal files (`--directory=DIR`, `--file=FILE`).
    """
    base = ("journalctl", "-q", "--no-pager", "-r", *source, "-u", unit, "--since", f"-{WINDOW_S}s")
    as_json = ("-o", "json", "--all", f"--output-fields={FIELDS}")
    done = await _run((*base, "-n", str(LINES), *as_json), context)
    # The newest come first: of too much output the end of the log is there.
    if not done.ok and done.end is not child.End.TOO_LARGE:
        return [_failed("log.txt", unit, done)]
    entries = list(parse_entries(done.stdout))[::-1]
    if not entries:
        error = f"the journal has nothing of {unit} within 24 h: check the unit's name, and that this user may read it"
        return [Taken(name="log.txt", status=Status.ABSENT, error=error)]
    is_cut = len(entries) >= LINES or done.truncated
    content = b"".join(entry.message + b"\n" for entry in entries)
    taken = [Taken(name="log.txt", content=content, truncated=is_cut, covers_since=entries[0].at)]
    if is_cut:
        taken.append(await _earlier(unit, base, as_json, entries[0].at, context))
    return taken


async def _earlier(
    unit: str, base: tuple[str, ...], as_json: tuple[str, ...], until: datetime, context: Context
) -> Taken:
    pattern = "|".join(re.escape(marker) for marker in MARKERS)
    limits = ("--until", f"@{until.timestamp() - 1e-6:.6f}", "-n", str(EARLIER_LINES))
    done = await _run((*base, *limits, "--case-sensitive=yes", "--grep", pattern, *as_json), context)
    # journalctl says 1 when no entry matches.
    if done.end is not child.End.EXITED or done.code not in (0, 1):
        return _failed("log.earlier.txt", unit, done)
    content = b"".join(entry.message + b"\n" for entry in [*parse_entries(done.stdout)][::-1])
    return Taken(name="log.earlier.txt", content=content, truncated=True)


async def _run(argv: tuple[str, ...], context: Context) -> child.Child:
    return await context.host.run(argv, deadline_s=context.deadline.at_most(JOURNAL_S), most_bytes=OUTPUT_MOST_BYTES)


def _failed(name: str, unit: str, done: child.Child) -> Taken:
    status = {child.End.TIMEOUT: Status.TIMEOUT, child.End.MISSING: Status.ABSENT}.get(done.end, Status.FAILED)
    return Taken(name=name, status=status, error=f"journal of {unit}: {done.describe()}")


def parse_entries(output: bytes) -> Iterable[Entry]:
    """Yield the entries of `journalctl -o json`; what is cut or no entry is passed over."""
    decoder = msgspec.json.Decoder(Entry)
    for line in output.splitlines():
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            continue
