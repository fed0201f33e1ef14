"""Which KV heads each rank of decode reads from which rank of prefill. Pure; the two sides may differ in size.

    prefill, 2 ranks, 3 heads        decode, 3 ranks
      rank 0 holds 0 1     ─── 0 ──>   rank 0 holds 0
                           ─── 1 ──>   rank 1 holds 1
      rank 1 holds     2   ─── 2 ──>   rank 2 holds 2

A head that several ranks of prefill hold is read from the first of them; one that several ranks of decode hold is
read by each, into its own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec


class HeadRun(msgspec.Struct, frozen=True):
    """Neighbouring KV heads that one rank of decode reads from one rank of prefill."""

    source_rank: int
    reader_rank: int
    source_head: int
    """Position of the first one in the source rank's pool."""
    reader_head: int
    """Position of the first one in the reader rank's pool."""
    count: int

    @property
    def in_source(self) -> range:
        """The heads' places in the source rank's pool."""
        return range(self.source_head, self.source_head + self.count)

    @property
    def in_reader(self) -> range:
        """The heads' places in the reader rank's pool."""
        return range(self.reader_head, self.reader_head + self.count)


def head_runs(sources: Sequence[range], readers: Sequence[range]) -> tuple[HeadRun, ...]:
    """Return the runs that fill every reader's heads once; heads that no source holds are left out.

    `sources` and `readers` are the KV heads by rank, in the model's numbering.
    """
    first_holder = {head: rank for rank, heads in reversed(list(enumerate(sources))) for head in heads}
    runs = []
    for reader_rank, heads in enumerate(readers):
        for source_rank, group in groupby(heads, first_holder.get):
            if source_rank is not None:
                run = list(group)
                source_head = run[0] - sources[source_rank].start
                runs.append(HeadRun(source_rank, reader_rank, source_head, run[0] - heads.start, len(run)))
    return tuple(runs)


def absent_heads(sources: Sequence[range], readers: Sequence[range]) -> list[int]:
    """Return the heads that some reader needs and no source holds."""
    held = {head for heads in sources for head in heads}
    return sorted({head for heads in readers for head in heads} - held)
