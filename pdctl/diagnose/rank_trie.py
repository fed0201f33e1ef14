"""The stacks of an engine's ranks, folded: what all of them are in, and where they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.diagnose.ranks import rank_name, schedulers
from pdctl.diagnose.report import RankRow
from pdctl.evidence.records import ProcessStack

_NAMELESS = ("", "<module>")
_Path = tuple[str, tuple[str, ...]]
"""A rank and the functions of its scheduler thread, outermost first."""


def rank_rows(instance: str, stacks: tuple[ProcessStack, ...]) -> tuple[RankRow, ...]:
    """Return the branches, the widest first; ranks that stand together are one row."""
    paths: list[_Path] = []
    for index, process in enumerate(schedulers(stacks)):
        thread = process.main
        if thread is not None and thread.frames:
            path = tuple(frame.function for frame in reversed(thread.frames) if frame.function not in _NAMELESS)
            paths.append((rank_name(process, index), path))
    return tuple(_branches(instance, 0, paths)) if paths else ()


def _branches(instance: str, depth: int, paths: Sequence[_Path]) -> Iterator[RankRow]:
    """Yield the functions that these ranks share, then each way on."""
    shared = _shared([path for _, path in paths])
    path = paths[0][1][:shared] or ("(nothing shared)",)
    yield RankRow(instance=instance, depth=depth, path=path, ranks=tuple(name for name, _ in paths))
    ways: dict[str, list[_Path]] = {}
    for name, path in paths:
        if path[shared:]:
            ways.setdefault(path[shared], []).append((name, path[shared:]))
    if len(ways) == 1 and len(next(iter(ways.values()))) == len(paths):
        return
    for way in sorted(ways.values(), key=lambda ranks: -len(ranks)):
        yield from _branches(instance, depth + 1, way)


def _shared(paths: Sequence[tuple[str, ...]]) -> int:
    """Return how many outermost functions are the same in all of them."""
    return next(
        (index for index, names in enumerate(zip(*paths, strict=False)) if len(set(names)) > 1),
        min(map(len, paths)),
    )
