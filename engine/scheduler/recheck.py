"""Has the prompt pages of a request summed when they landed and again at its end: nothing may have written to them.

Only with `--recheck-prompts`. Whole pages only: into the last one decode writes its own tokens. Every rank sums its
heads of them, in the thread that reads; until all have answered, the pages of an ended request stay where they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.scheduler.sequence import Sequence
from engine.transfer.interface import Summed

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Prompt:
    pages: list[int]
    landed: dict[int, bytes] = field(default_factory=dict)
    """Rank -> its sums when they had landed."""
    has_ended: bool = False
    rechecked: set[int] = field(default_factory=set)
    """Ranks that have summed them again."""


class PromptRecheck:
    """Belongs to the loop; the counters may be read from any thread."""

    def __init__(self, sum_pages: Callable[[str, list[int]], None], page_size: int, ranks: int) -> None:
        """`sum_pages` asks all ranks; a `Summed` of each follows, in the order of asking."""
        self.rechecked = [0] * ranks
        """Requests by rank."""
        self.changed = [0] * ranks
        """Requests, not pages, by rank."""
        self._sum_pages = sum_pages
        self._page_size = page_size
        self._prompts: dict[str, _Prompt] = {}

    def landed(self, sequence: Sequence) -> None:
        """Have the prompt's whole pages summed."""
        whole = sequence.pages[: sequence.prompt_length // self._page_size]
        if whole:
            self._prompts[sequence.rid] = _Prompt(whole)
            self._sum_pages(sequence.rid, whole)

    def ends(self, rid: str) -> None:
        """Have them summed again, before they are freed."""
        if (prompt := self._prompts.get(rid)) is not None:
            prompt.has_ended = True
            self._sum_pages(rid, prompt.pages)

    def needs(self, rid: str) -> bool:
        """Return whether the pages of an ended request are still being summed."""
        return rid in self._prompts

    def forget(self, rid: str) -> None:
        """Compare nothing: the pages are given back, because the sequence is computed again."""
        self._prompts.pop(rid, None)

    def take(self, summed: Summed) -> None:
        """Keep a rank's first sums, compare its second ones."""
        prompt = self._prompts.get(summed.rid)
        if prompt is None:
            return
        first = prompt.landed.get(summed.rank)
        if first is None:
            prompt.landed[summed.rank] = summed.sums
            return
        self.rechecked[summed.rank] += 1
        if first != summed.sums:
            self.changed[summed.rank] += 1
            where = _first_difference(first, summed.sums) * len(prompt.pages) // len(first)
            log.error(
                "page %d of the prompt of %s changed on rank %d while it was running", where, summed.rid, summed.rank
            )
        prompt.rechecked.add(summed.rank)
        if len(prompt.rechecked) == len(self.rechecked):
            del self._prompts[summed.rid]


def _first_difference(first: bytes, second: bytes) -> int:
    return next(index for index, (one, other) in enumerate(zip(first, second, strict=True)) if one != other)
