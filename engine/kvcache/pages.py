"""Who owns each page of the pool (invariant 7). Used by the loop only; no locks."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.observe.records import Ledger


class Owner(IntEnum):
    """What a page is for. The sum over all owners is the pool."""

    FREE = 0
    CACHED = 1
    """Of the prefix cache, used by nobody: given up when pages are short."""
    RUNNING = 2
    """Of a sequence in this instance's steps."""
    HELD_FOR_PEER = 3
    """Prefill: computed, waiting for COMMIT; also those of them that the prefix cache will keep."""
    READING = 4
    """Decode: NIXL may write into it."""
    FENCING = 5
    """Decode: of a failed room, until no read can touch it."""
    PINNED = 6
    """Of the prefix cache, used by at least one sequence (and not held for a peer)."""


class PageLedger:
    """Hands out pages, neighbours where it can, and knows the owner of each.

    Taking costs about 20 us for a pool of a thousand pages.
    """

    def __init__(self, pages: int) -> None:
        self._owner = np.zeros(pages, dtype=np.uint8)

    @property
    def total(self) -> int:
        """Pages in the pool."""
        return len(self._owner)

    @property
    def free_count(self) -> int:
        """Pages that can be taken."""
        return int(np.count_nonzero(self._owner == Owner.FREE))

    def take(self, count: int, owner: Owner, after: int | None = None) -> list[int] | None:
        """Take `count` pages at once, or none (None) when there are too few.

        `after` asks for the page behind that one first, so that a growing sequence stays in one run.
        """
        if count == 1 and after is not None and after + 1 < self.total and self._owner[after + 1] == Owner.FREE:
            self._owner[after + 1] = owner
            return [after + 1]
        free = np.flatnonzero(self._owner == Owner.FREE)
        if len(free) < count:
            return None
        chosen = free[_best_fit(free, count)]
        self._owner[chosen] = owner
        return [int(page) for page in chosen]

    def move(self, pages: list[int], owner: Owner) -> None:
        """Change the owner of taken pages."""
        if not pages:
            return
        if (self._owner[pages] == Owner.FREE).any():
            raise ValueError(f"pages {pages} are to become {owner.name}, but some of them are free")
        self._owner[pages] = owner

    def free(self, pages: list[int]) -> None:
        """Give pages back; giving back a free page is a bug and raises."""
        self.move(pages, Owner.FREE)

    def ledger(self) -> Ledger:
        """Count the pages by owner."""
        counts = np.bincount(self._owner, minlength=len(Owner))
        by_owner = {owner.name.lower(): int(counts[owner]) for owner in Owner}
        return Ledger(total=self.total, balanced=sum(by_owner.values()) == self.total, **by_owner)


def _best_fit(free: np.ndarray, count: int) -> np.ndarray:
    """Return indices into `free` of `count` pages: the smallest run that holds them, else the largest runs."""
    breaks = np.flatnonzero(np.diff(free) != 1) + 1
    starts = np.concatenate(([0], breaks))
    lengths = np.diff(np.concatenate((starts, [len(free)])))
    fitting = np.flatnonzero(lengths >= count)
    if len(fitting):
        best = starts[fitting[np.argmin(lengths[fitting])]]
        return np.arange(best, best + count)
    order = np.argsort(-lengths, kind="stable")
    pieces = [np.arange(starts[run], starts[run] + lengths[run]) for run in order]
    return np.sort(np.concatenate(pieces)[:count])
