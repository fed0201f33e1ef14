"""Sums the prompt pages of a request when they landed and again at its end: nothing may have written to them.

Only with `--recheck-prompts`. Whole pages only: into the last one decode writes its own tokens. Of several ranks rank 0
sums its heads of them.
"""

from __future__ import annotations

import logging

from engine.kvcache.layout import PageMemory
from engine.scheduler.sequence import Sequence
from engine.transfer.checksums import differing_page, page_checksums

log = logging.getLogger(__name__)


class PromptRecheck:
    """Belongs to the loop; the counters may be read from any thread."""

    def __init__(self, pages: PageMemory) -> None:
        self.rechecked = 0
        self.changed = 0
        """Requests, not pages."""
        self._pages = pages
        self._sums: dict[str, tuple[list[int], bytes]] = {}

    def landed(self, sequence: Sequence) -> None:
        """Sum the prompt's whole pages."""
        whole = sequence.pages[: sequence.prompt_length // self._pages.layout.page_size]
        self._sums[sequence.rid] = (whole, page_checksums(self._pages, whole))

    def ends(self, sequence: Sequence) -> None:
        """Sum them again, unless the sequence was retracted and has others now. Called before they are freed."""
        pages, sums = self._sums.pop(sequence.rid, ([], b""))
        if not pages or sequence.pages[: len(pages)] != pages:
            return
        self.rechecked += 1
        if (position := differing_page(self._pages, pages, sums)) is not None:
            self.changed += 1
            log.error("page %d of the prompt of %s changed while it was running", position, sequence.rid)
