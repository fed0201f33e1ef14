"""What the next step computes: decodes first, then prompt chunks within the budget."""

from __future__ import annotations

from engine.config import EngineConfig
from engine.kvcache.pages import Owner
from engine.scheduler.book import Book
from engine.scheduler.sequence import Phase, Sequence
from engine.scheduler.step import Step, Work

AGING_TOKENS_PER_S = 1000.0
"""About what one core computes of a small model: who waits as long as its own prompt takes is overtaken no more."""


class Planner:
    """Chooses the work of a step and takes the pages for it.

    **Order.** Short prompts go before long ones, but a prompt grows older while it waits: one of n tokens stands as
    if it had come n / AGING_TOKENS_PER_S seconds later than it did. So it is overtaken only by prompts that come within
    that time, each of them shorter, and then it is the first: nothing starves, and who comes soon after the beginning
    of a long prompt does not wait for its end. What a prompt in the middle still lacks counts as its length. Retracted
    sequences, whose clients are being told tokens, go before all prompts. The first that cannot get its pages lets no
    other enter.

    **Pages.** A sequence enters with the pages of all its tokens, so a prompt once begun can always be finished. When a
    decode cannot grow, the youngest running sequence is retracted (never the oldest): its pages go back, and it is
    computed again from prompt and tokens, or from what the prefix cache has kept of them. The last one that runs waits
    instead: its pages are with rooms that are being read, and these end. Admission demands prompt + max_tokens <= pool,
    so the oldest can always finish.

    **Ahead.** With `--schedule overlap` a step is planned while the one before it runs, so the last token of a decode
    may be still to come: its position is known, and that is all that planning needs. A sequence that will turn out to
    have ended with that token is in the step once too often, and what it gives is dropped. Nobody is retracted while a
    step runs: who lacks a page waits for its end, which may bring pages.

    **Sharing.** What two prompts share is computed once: a sequence does not enter while another one is at work on
    whole pages that both begin with. It waits for these pages only (they are shared chunk by chunk), and for one that
    has entered before it, which needs nothing from it; so it never waits in a circle.
    """

    def __init__(self, config: EngineConfig, book: Book) -> None:
        self._config = config
        self._book = book
        self._queues = book.queues
        self._cache = book.cache
        self._number = 0
        self.retractions = 0

    def next_step(self, now: float, *, others_run: bool) -> Step | None:
        """Return the next step, to be handed out, or None when there is nothing to compute now.

        `others_run`: steps are handed out whose results the loop has not seen.
        """
        if not self._make_room(now, others_run):
            return None
        decodes = [
            Work(sequence, sequence.planned, 1, samples=True)
            for sequence in self._decoding()
            if self._has_room(sequence)
        ]
        chunks = self._chunks(now)
        if not decodes and not chunks:
            return None
        self._number += 1
        return Step(self._number, tuple(decodes), tuple(chunks))

    def _decoding(self) -> list[Sequence]:
        return [each for each in self._queues.running() if each.is_decoding and each.wants_more]

    def _make_room(self, now: float, others_run: bool) -> bool:
        """Give each decode a page for its next token; False when somebody must be retracted and steps run."""
        for sequence in self._decoding():
            while sequence.is_decoding and not self._grow(sequence):
                if others_run:
                    return False
                if self._queues.running() == [sequence]:
                    break
                self._retract_youngest(now)
        return True

    def _has_room(self, sequence: Sequence) -> bool:
        return sequence.length <= len(sequence.pages) * self._config.page_size

    def _grow(self, sequence: Sequence) -> bool:
        if self._has_room(sequence):
            return True
        last = sequence.pages[-1] if sequence.pages else None
        page = self._cache.take(1, Owner.RUNNING, after=last)
        if page is None:
            return False
        sequence.pages += page
        return True

    def _retract_youngest(self, now: float) -> None:
        victim = max(self._queues.running(), key=lambda s: s.arrival)
        self._book.give_back(victim)
        victim.prompt_logprobs = []
        victim.enter(Phase.WAITING, now)
        self.retractions += 1

    def _chunks(self, now: float) -> list[Work]:
        budget = self._config.chunk_tokens
        chunks = []
        is_full = False
        at_work = self._queues.in_phase(Phase.PROMPT)
        unplanned = [sequence for sequence in at_work if sequence.pending and not sequence.coming]
        for sequence in sorted(unplanned + self._queues.in_phase(Phase.WAITING), key=_turn):
            if budget == 0:
                break
            if sequence.phase is Phase.WAITING:
                if is_full or self._is_being_computed(sequence, at_work):
                    continue
                is_full = not self._admit(sequence, now)
                if is_full:
                    continue
                at_work.append(sequence)
            length = self._chunk_length(sequence, budget)
            if length == 0:
                break
            samples = length == sequence.pending and not sequence.scores_only
            chunks.append(Work(sequence, sequence.planned, length, samples))
            budget -= length
        return chunks

    def _chunk_length(self, sequence: Sequence, budget: int) -> int:
        """Whole pages, but for the last chunk: a chunk that is sent must end on a page."""
        if sequence.pending <= budget:
            return sequence.pending
        end = (sequence.planned + budget) // self._config.page_size * self._config.page_size
        return max(0, end - sequence.planned)

    def _admit(self, sequence: Sequence, now: float) -> bool:
        if len(self._queues.running()) >= self._config.max_running:
            return False
        if not self.take_for(sequence, Owner.RUNNING):
            return False
        sequence.computed = sequence.planned = sequence.cached
        sequence.enter(Phase.PROMPT, now)
        return True

    def _is_being_computed(self, sequence: Sequence, at_work: list[Sequence]) -> bool:
        """Return whether a prompt at work will have computed more of this one's first pages than are here now."""
        if not self._cache.enabled:
            return False
        coming = [shared for other in at_work if (shared := self._shared_tokens(sequence, other)) > other.computed]
        return bool(coming) and max(coming) > self._cache.length(sequence.tokens, sequence.reusable)

    def _shared_tokens(self, sequence: Sequence, other: Sequence) -> int:
        """Return how many tokens, in whole pages, both begin with."""
        size = self._config.page_size
        limit = min(sequence.reusable, len(other.tokens)) // size * size
        for start in range(0, limit, size):
            if sequence.tokens[start : start + size] != other.tokens[start : start + size]:
                return start
        return limit

    def take_for(self, sequence: Sequence, owner: Owner) -> bool:
        """Give a newcomer the pages of all its tokens: what the prefix cache has of them, and new ones.

        Leaves one page to each running sequence, so that those who are there grow before newcomers enter and are
        not retracted for them.
        """
        lease = self._cache.match(sequence.tokens, sequence.reusable)
        count = -(-len(sequence.tokens) // self._config.page_size) - len(lease.nodes)
        spare = self._cache.available - count
        new = None if spare < len(self._queues.in_phase(Phase.DECODING)) else self._cache.take(count, owner)
        if new is None:
            self._cache.release(lease)
            return False
        sequence.lease, sequence.pages = lease, lease.pages + new
        self._cache.note(len(sequence.tokens), sequence.cached)
        if sequence.record.output_tokens == 0:
            sequence.record.cached_tokens = sequence.cached
        return True


def _turn(sequence: Sequence) -> tuple[bool, float, int]:
    """Return the place of a prompt among those that want to be computed; see `Planner`."""
    if sequence.record.output_tokens:
        return (False, 0.0, sequence.arrival)
    return (True, sequence.arrived_at + sequence.pending / AGING_TOKENS_PER_S, sequence.arrival)
