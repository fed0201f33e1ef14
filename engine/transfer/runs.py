"""From pages to NIXL descriptors.

In the layout `[layer][K|V][head][page][slot][dim]` neighbouring pages of one head are one contiguous piece,
so a run of n neighbouring pages (in the source and in the target alike) costs layers x 2 x heads descriptors
instead of n times as many. Few long descriptors are what NIXL is fast with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.kvcache.layout import KVLayout

Descriptors = npt.NDArray[np.uint64]
"""`[n, 3]`: address, length in bytes, device."""


@dataclass(frozen=True, slots=True)
class Run:
    """`count` neighbouring pages, from `source` on there and from `target` on here."""

    source: int
    target: int
    count: int


@dataclass(frozen=True, slots=True)
class Place:
    """A pool in some process's memory."""

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


def descriptors(source: Place, target: Place, runs: Sequence[Run]) -> tuple[Descriptors, Descriptors]:
    """Return (target side, source side) descriptors of `runs`, row i of one matching row i of the other.

    Both layouts must agree in everything but `pages` (the contract saw to that).
    """
    counts = np.array([run.count for run in runs], dtype=np.uint64)
    here = _rows(target, np.array([run.target for run in runs], dtype=np.uint64), counts)
    there = _rows(source, np.array([run.source for run in runs], dtype=np.uint64), counts)
    return here, there


def _rows(place: Place, first_pages: npt.NDArray[np.uint64], counts: npt.NDArray[np.uint64]) -> Descriptors:
    layout = place.layout
    piece = np.uint64(layout.piece_bytes)
    heads = np.arange(layout.layers * 2 * layout.kv_heads, dtype=np.uint64)
    starts = np.uint64(place.address) + heads * np.uint64(layout.pages) * piece
    addresses = starts[:, None] + first_pages[None, :] * piece
    rows = np.zeros((addresses.size, 3), dtype=np.uint64)
    rows[:, 0] = addresses.ravel()
    rows[:, 1] = np.broadcast_to(counts * piece, addresses.shape).ravel()
    return rows
