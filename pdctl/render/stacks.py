"""`pdctl stacks`: the threads of each process, innermost frame first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pdctl.collect.look import Dump
from pdctl.evidence.records import ProcessStack


def as_json(dumps: Sequence[Dump]) -> str:
    """Return all dumps; an instance without processes has a `problem`."""
    return msgspec.json.format(msgspec.json.encode(dumps), indent=2).decode()


def as_text(dumps: Iterable[Dump]) -> str:
    """Return text in the manner of py-spy, under a heading for each instance."""
    return "\n".join(line for dump in dumps for line in _instance(dump))


def _instance(dump: Dump) -> Iterator[str]:
    pause = f", stood still for at most {dump.pause_ms:.0f} ms" if dump.pause_ms else ""
    yield f"== {dump.instance}: {len(dump.processes)} processes{pause}"
    for process in dump.processes:
        yield from _process(process)


def _process(process: ProcessStack) -> Iterator[str]:
    yield f"Process {process.pid}: {process.title}"
    for thread in process.threads:
        yield f"  Thread {thread.name or 'without name'} ({'active' if thread.is_active else 'idle'})"
        for frame in thread.frames:
            yield f"      {frame.function} ({frame.file})"
    yield ""
