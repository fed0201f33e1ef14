"""One step as the scheduler sees it, until its result is there; the ranks see it as a `StepPlan`."""

from __future__ import annotations

from dataclasses import dataclass

from engine.scheduler.sequence import Sequence
from engine.scheduler.step_plan import COMING, PromptScore, SamplingStart, SequenceStep, StepPlan


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens `start .. start + length` of a sequence; `samples` when its next token is chosen from them."""

    sequence: Sequence
    start: int
    length: int
    samples: bool

    @property
    def end(self) -> int:
        """Return how many of the sequence's tokens have their KV in the pool afterwards."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Step:
    """Decodes (length 1) stand before chunks."""

    number: int
    decodes: tuple[Work, ...]
    chunks: tuple[Work, ...]

    @property
    def works(self) -> tuple[Work, ...]:
        """Return all work in the order of the forward batch."""
        return self.decodes + self.chunks

    @property
    def tokens(self) -> int:
        """Return the new tokens: what makes a step short or long."""
        return sum(work.length for work in self.works)

    def hand_out(self, page_size: int, ended: list[str]) -> StepPlan:
        """Note on the sequences what this step will have done, and return it as the ranks see it."""
        plan = StepPlan(self.number, len(self.decodes), [_told(work, page_size) for work in self.works], ended)
        for work in self.works:
            work.sequence.last_step = self.number
            work.sequence.planned = work.end
            work.sequence.coming += work.samples
            work.sequence.is_begun |= work.samples
        return plan


def _told(work: Work, page_size: int) -> SequenceStep:
    sequence = work.sequence
    sampling = None
    if work.samples and not sequence.is_begun:
        sampling = SamplingStart(sequence.request.sampling, sequence.request.prompt_ids, sequence.output_ids)
    return SequenceStep(
        rid=sequence.rid,
        start=work.start,
        tokens=sequence.tokens[work.start : work.end] or [COMING],
        pages=sequence.pages[: -(-work.end // page_size)],
        samples=work.samples,
        score=_scored(work),
        sampling=sampling,
    )


def _scored(work: Work) -> PromptScore | None:
    """Return the positions in this work whose next token is a prompt token that wants a logprob."""
    params = work.sequence.request.sampling
    if params.prompt_logprobs is None:
        return None
    first = max(work.start, params.prompt_logprobs_start - 1)
    last = min(work.end, work.sequence.prompt_length - 1)
    if first >= last:
        return None
    return PromptScore(first, work.sequence.tokens[first + 1 : last + 1], params.prompt_logprobs)
