"""From pages to NIXL descriptors.

In the layout `[layer][K|V][head][page][slot][dim]` neighbouring pages of one head are one contiguous piece,
so a run of n neighbouring pages (in the source and in the target alike) costs layers x 2 x heads descriptors
instead of n times as many. Few long descriptors are what NIXL is fast with. With tensor parallel a READ takes the
heads that both ranks hold, which need not lie at the same place in the two pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from engine.kvcache.layout import KVLayout
from engine.transfer.protocol.head_runs import HeadRun

Descriptors = npt.NDArray[np.uint64]
"""`[n, 3]`: address, length in bytes, device."""


@dataclass(frozen=True, slots=True)
class Run:
    """`count` neighbouring pages, from `source` on there and from `target` on here."""

    source: int
    target: int
    count: int


class Place(msgspec.Struct, frozen=True):
    """A rank's pool in some process's memory."""

    address: int
    layout: KVLayout


def merge(source_pages: Sequence[int], target_pages: Sequence[int]) -> list[Run]:
    """Join pages that are neighbours on both sides, keeping their order.

    Raises ValueError when the two lists differ in length.
    """
    runs: list[Run] = []
    for source, target in zip(source_pages, target_pages, strict=True):
        last = runs[-1] if runs else None
        if last and source == last.source + last.count and target == last.target + last.count:
            runs[-1] = Run(last.source, last.target, last.count + 1)
        else:
            runs.append(Run(source, target, 1))
    return runs


def descriptors(source: Place, target: Place, runs: Sequence[Run], heads: HeadRun) -> tuple[Descriptors, Descriptors]:
    """Return (target side, source side) descriptors of `runs`, row i of one matching row i of the other.

    Both layouts must agree in everything but `pages` and `kv_heads` (the contract saw to that).
    """
    counts, sources, targets = (
        np.array(numbers, dtype=np.uint64)
        for numbers in zip(*((run.count, run.source, run.target) for run in runs), strict=True)
    )
    return _rows(target, targets, counts, heads.in_reader), _rows(source, sources, counts, heads.in_source)


def _rows(
    place: Place, first_pages: npt.NDArray[np.uint64], counts: npt.NDArray[np.uint64], heads: range
) -> Descriptors:
    layout = place.layout
    piece = np.uint64(layout.piece_bytes)
    planes = np.arange(layout.layers * 2, dtype=np.uint64) * np.uint64(layout.kv_heads)
    held = planes[:, None] + np.array(heads, dtype=np.uint64)
    starts = np.uint64(place.address) + held.ravel() * np.uint64(layout.pages) * piece
    addresses = starts[:, None] + first_pages[None, :] * piece
    rows = np.zeros((addresses.size, 3), dtype=np.uint64)
    rows[:, 0] = addresses.ravel()
    rows[:, 1] = np.broadcast_to(counts * piece, addresses.shape).ravel()
    return rows
