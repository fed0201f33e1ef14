"""What the next step computes: decodes first, then prompt chunks within the budget."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.kvcache.pages import Owner, PageLedger
from engine.scheduler.queues import Queues
from engine.scheduler.sequence import Phase, Sequence


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens `start .. start + length` of a sequence; `samples` when its next token follows from them."""

    sequence: Sequence
    start: int
    length: int
    samples: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Decodes (length 1) stand before chunks."""

    number: int
    decodes: tuple[Work, ...]
    chunks: tuple[Work, ...]

    @property
    def works(self) -> tuple[Work, ...]:
        """Return all work in the order of the forward batch."""
        return self.decodes + self.chunks


class Planner:
    """Chooses the work of a step and takes the pages for it.

    Order is arrival order. A sequence enters with the pages of all its tokens, so a prompt once begun can always be
    finished. When a decode cannot grow, the youngest running sequence is retracted (never the oldest): its pages are
    freed and it goes to the front of the queue, to be computed again from prompt and tokens. Admission demands
    prompt + max_tokens <= pool, so the oldest can always finish.
    """

    def __init__(self, config: EngineConfig, queues: Queues, pages: PageLedger) -> None:
        self._config = config
        self._queues = queues
        self._pages = pages
        self._number = 0
        self.retractions = 0

    def next_step(self, now: float) -> StepPlan | None:
        """Return the next step, or None when there is nothing to compute."""
        decodes = self._decodes(now)
        chunks = self._chunks(now)
        if not decodes and not chunks:
            return None
        self._number += 1
        return StepPlan(self._number, tuple(decodes), tuple(chunks))

    def _decodes(self, now: float) -> list[Work]:
        for sequence in self._queues.in_phase(Phase.DECODING):
            while sequence.phase is Phase.DECODING and not self._grow(sequence):
                self._retract_youngest(now)
        return [
            Work(sequence, sequence.computed, 1, samples=True) for sequence in self._queues.in_phase(Phase.DECODING)
        ]

    def _grow(self, sequence: Sequence) -> bool:
        if len(sequence.tokens) <= len(sequence.pages) * self._config.page_size:
            return True
        last = sequence.pages[-1] if sequence.pages else None
        page = self._pages.take(1, Owner.RUNNING, after=last)
        if page is None:
            return False
        sequence.pages += page
        return True

    def _retract_youngest(self, now: float) -> None:
        victim = max(self._queues.running(), key=lambda s: s.arrival)
        self._pages.free(victim.pages)
        victim.pages = []
        victim.computed = 0
        victim.prompt_logprobs = []
        victim.enter(Phase.WAITING, now)
        self.retractions += 1

    def _chunks(self, now: float) -> list[Work]:
        budget = self._config.chunk_tokens
        chunks = []
        for sequence in self._queues.in_phase(Phase.PROMPT) + self._queues.in_phase(Phase.WAITING):
            length = self._chunk_length(sequence, budget)
            if length == 0 or not self._admit(sequence, now):
                break
            chunks.append(Work(sequence, sequence.computed, length, samples=length == sequence.pending))
            budget -= length
        return chunks

    def _chunk_length(self, sequence: Sequence, budget: int) -> int:
        """Whole pages, but for the last chunk: a chunk that is sent must end on a page."""
        if sequence.pending <= budget:
            return sequence.pending
        end = (sequence.computed + budget) // self._config.page_size * self._config.page_size
        return max(0, end - sequence.computed)

    def _admit(self, sequence: Sequence, now: float) -> bool:
        if sequence.phase is Phase.PROMPT:
            return True
        if len(self._queues.running()) >= self._config.max_running:
            return False
        pages = self.take_for(len(sequence.tokens), Owner.RUNNING)
        if pages is None:
            return False
        sequence.pages = pages
        sequence.enter(Phase.PROMPT, now)
        return True

    def take_for(self, tokens: int, owner: Owner) -> list[int] | None:
        """Take the pages of `tokens` tokens for a newcomer, or None.

        Leaves one page to each running sequence, so that those who are there grow before newcomers enter and are
        not retracted for them.
        """
        count = -(-tokens // self._config.page_size)
        if self._pages.free_count - count < len(self._queues.in_phase(Phase.DECODING)):
            return None
        return self._pages.take(count, owner)
