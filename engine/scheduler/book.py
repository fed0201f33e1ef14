"""The one place where sequences come in and go out, so that answers, pages and journal stay in step."""

from __future__ import annotations

from collections import Counter

from engine.clock import Clock
from engine.kvcache.pages import PageLedger
from engine.kvcache.prefix_cache import PrefixCache
from engine.messages import Delta, Failure, FinishReason, TokenLogprob
from engine.model.sampling import Sampled
from engine.observe.journal import Journal
from engine.observe.records import Stage
from engine.scheduler.queues import Queues
from engine.scheduler.recheck import PromptRecheck
from engine.scheduler.sequence import Phase, Sequence
from engine.transfer.interface import Summed


class Book:
    """Queues, page ledger, prefix cache, journal and the answers of the current turn. Owned by the loop."""

    def __init__(self, clock: Clock, page_size: int, pages: PageLedger, cache: PrefixCache, journal: Journal) -> None:
        self.clock = clock
        self.page_size = page_size
        self.pages = pages
        self.cache = cache
        self.journal = journal
        self.queues = Queues()
        self.recheck: PromptRecheck | None = None
        self.results: Counter[str] = Counter()
        """Ended sequences by result: `stop`, `length`, `aborted`, or the code of the failure."""
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self._forgotten: list[str] = []
        """Ended sequences whose sampling state the runner still keeps; the next plan names them."""
        self._done_step = 0
        self._leaving: list[Sequence] = []
        """Ended sequences whose pages are still needed."""
        self._answers: list[Delta | Failure] = []

    def open(self, sequence: Sequence) -> None:
        """Take a new sequence in."""
        self.journal.open(sequence.record, sequence.request.received_at)
        self.queues.add(sequence)
        self.enter(sequence, sequence.phase)

    def enter(self, sequence: Sequence, phase: Phase) -> None:
        """Move a sequence to a phase."""
        sequence.enter(phase, self.clock.monotonic())
        if sequence.record.room is None:
            sequence.record.state = phase.value

    def tell(self, sequence: Sequence, token: Sampled, finish: FinishReason | None, cached: int = 0) -> None:
        """Answer one token, the last one with `finish`."""
        first = Stage.FIRST_TOKEN not in sequence.record.at
        self.journal.mark(sequence.record, Stage.FIRST_TOKEN)
        if finish is not None:
            self.journal.mark(sequence.record, Stage.LAST_TOKEN)
        sequence.record.output_tokens += 1
        self.generated_tokens += 1
        self._answers.append(
            Delta(
                rid=sequence.rid,
                token_ids=[token.token_id],
                logprobs=None if token.logprob is None else [token.logprob],
                prompt_logprobs=_asked_prompt_logprobs(sequence) if first else None,
                finish=finish,
                stop_token_id=token.token_id if finish is FinishReason.STOP else None,
                cached_tokens=cached,
            )
        )

    def tell_score(self, sequence: Sequence) -> None:
        """Answer a request that wanted the prompt's logprobs only."""
        asked = _asked_prompt_logprobs(sequence)
        cached = sequence.record.cached_tokens
        self._answers.append(
            Delta(
                rid=sequence.rid,
                token_ids=[],
                prompt_logprobs=asked,
                finish=FinishReason.LENGTH,
                cached_tokens=cached,
            )
        )

    def tell_failure(self, sequence: Sequence, status: int, code: str, message: str) -> None:
        """Answer an error; the sequence stays until it is released."""
        self._answers.append(Failure(rid=sequence.rid, status=status, code=code, message=message))

    def share(self, sequence: Sequence) -> None:
        """Let others find the whole pages that a sequence has computed so far."""
        self.cache.extend(sequence.lease, sequence.tokens, sequence.computed, sequence.pages)

    def give_back(self, sequence: Sequence) -> None:
        """Free a sequence's pages, but for those whose KV is right, which the prefix cache keeps."""
        if self.recheck is not None:
            self.recheck.forget(sequence.rid)
        self.cache.give_back(sequence.lease, sequence.tokens, sequence.computed, sequence.pages)
        sequence.pages, sequence.computed, sequence.planned = [], 0, 0

    def release(self, sequence: Sequence, result: str, reason: str | None = None) -> None:
        """Forget the sequence, close its record, give its pages back as soon as no step can write to them.

        `reason` marks a failure.
        """
        if self.recheck is not None:
            self.recheck.ends(sequence.rid)
        self._leaving.append(sequence)
        self._give_back_unneeded()
        if sequence.is_begun:
            self._forgotten.append(sequence.rid)
        self.queues.remove(sequence)
        self.journal.close(sequence.record, "closed" if reason is None else "failed", reason)
        self.results[result] += 1

    def step_done(self, number: int) -> None:
        """Give back the pages of those who ended while they had a part in steps up to this one."""
        self._done_step = number
        self._give_back_unneeded()

    def summed(self, event: Summed) -> None:
        """Take a rank's sums of a prompt, and give its pages back when they were the last that was waited for."""
        if self.recheck is not None:
            self.recheck.take(event)
            self._give_back_unneeded()

    def _give_back_unneeded(self) -> None:
        leaving, self._leaving = self._leaving, []
        for sequence in leaving:
            is_summed = self.recheck is None or not self.recheck.needs(sequence.rid)
            if is_summed and sequence.last_step <= self._done_step:
                self.give_back(sequence)
            else:
                self._leaving.append(sequence)

    def take_forgotten(self) -> list[str]:
        """Return the ended sequences since the last call."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def take_answers(self) -> list[Delta | Failure]:
        """Return the answers since the last call."""
        answers, self._answers = self._answers, []
        return answers


def _asked_prompt_logprobs(sequence: Sequence) -> list[TokenLogprob | None] | None:
    params = sequence.request.sampling
    if params.prompt_logprobs is None:
        return None
    unknown: list[TokenLogprob | None] = [None] if params.prompt_logprobs_start == 0 else []
    return unknown + sequence.prompt_logprobs
