"""Collector: a log file on another host. `tail`, `grep` and `find` do there what `logs` does here by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from pdctl.collect.context import Context
from pdctl.collect.markers import MARKERS
from pdctl.collect.records import Status, Taken, now
from pdctl.evidence.loglines import parse_log
from pdctl.hosts import child
from pdctl.hosts.child import Keep

READ_S = 10.0
EARLIER_BYTES = 1 << 20
# Rotated files of it, oldest first, then itself; not packed ones. All of them are one stream of bytes.
_STREAM = (
    'all() { for f in $(ls -1tr -- "$1".[0-9]* "$1"-[0-9]* 2>/dev/null | grep -v -E "\\.(gz|xz|zst|bz2)$"); '
    'do cat -- "$f"; done; cat -- "$1"; }; '
)
_END = _STREAM + 'test -r "$1" || { echo "cannot read $1" >&2; exit 1; }; all "$1" | tail -c "$2"'
_BEFORE = _STREAM + 'path=$1; cut=$2; shift 2; all "$path" | head -c "-$cut" | LC_ALL=C grep -a -F "$@"'


async def take_remote(path: Path, context: Context, tail_bytes: int) -> list[Taken]:
    """Read the end of a log and of its rotated files, and search what lies before."""
    # One byte more tells whether there is more.
    limit_s = context.deadline.at_most(READ_S)
    done = await context.host.run(
        ["sh", "-c", _END, "sh", str(path), str(tail_bytes + 1)], deadline_s=limit_s, most_bytes=tail_bytes + 1
    )
    if not done.ok:
        status = Status.TIMEOUT if done.end is child.End.TIMEOUT else Status.FAILED
        return [Taken(name="log.txt", status=status, error=done.describe())]
    is_cut = len(done.stdout) > tail_bytes
    # Half a line would be read as another one, and half a key not be known as a key.
    content = done.stdout.partition(b"\n")[2] if is_cut else done.stdout
    taken = [Taken(name="log.txt", content=content, truncated=is_cut, covers_since=_first_time(content, context))]
    return [*taken, await _earlier(path, len(content), context)] if is_cut else taken


async def _earlier(path: Path, kept_bytes: int, context: Context) -> Taken:
    words = [word for marker in MARKERS for word in ("-e", marker)]
    limit_s = context.deadline.at_most(READ_S)
    argv = ["sh", "-c", _BEFORE, "sh", str(path), str(kept_bytes), *words]
    done = await context.host.run(argv, deadline_s=limit_s, most_bytes=EARLIER_BYTES, keep=Keep.TAIL)
    content = done.stdout.partition(b"\n")[2] if done.truncated else done.stdout
    # grep says 1 where no line matches.
    if done.end is child.End.EXITED and done.code in (0, 1):
        return Taken(name="log.earlier.txt", content=content, truncated=True)
    status = Status.TIMEOUT if done.end is child.End.TIMEOUT else Status.FAILED
    return Taken(name="log.earlier.txt", content=content or None, status=status, error=done.describe(), truncated=True)


def _first_time(content: bytes, context: Context) -> datetime | None:
    lines, _ = parse_log(content[:65536], "log.txt", now())
    clock = context.host.clock
    ahead = timedelta(seconds=clock.utc_offset_s if clock else 0.0)
    return next((line.at - ahead for line in lines if line.at is not None), None)
