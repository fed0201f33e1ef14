"""What becomes of a computed step: known tokens, shared pages, ended sequences."""

from __future__ import annotations

from engine.messages import FinishReason
from engine.model.sampling import Fault, Sampled
from engine.observe.records import Stage
from engine.scheduler import failures
from engine.scheduler.book import Book
from engine.scheduler.failures import Ending
from engine.scheduler.roles import RoleBehaviour
from engine.scheduler.runner import StepResult
from engine.scheduler.sequence import Phase, Sequence
from engine.scheduler.step import Step, Work


class Results:
    """Takes the result of each step, in order, into the book. Belongs to the loop."""

    def __init__(self, book: Book, role: RoleBehaviour) -> None:
        self._book = book
        self._role = role

    def take(self, step: Step, result: StepResult) -> None:
        """Act on a step's result. Whoever has ended meanwhile has no part in it any more, but gets its pages back."""
        broken = {rid for rid, sampled in result.sampled.items() if sampled.fault is Fault.BROKEN_LOGITS}
        if broken:
            # Pages with NaN may have been shared already; they spoil whoever attends to them.
            self._book.cache.drop()
        works = [work for work in step.works if self._is_live(work)]
        for work in (*step.chunks, *works):
            # Also of a prompt whose sequence has ended: the prefix cache keeps what was computed of it.
            work.sequence.computed = 0 if work.sequence.rid in broken else work.end
        for work in works:
            work.sequence.coming -= work.samples
            work.sequence.prompt_logprobs += result.prompt_logprobs.get(work.sequence.rid, [])
        for work in works:
            # Not of those that wait for the end of their room.
            if work.sequence.phase is Phase.DECODING:
                self._decoded(work.sequence, result)
            elif work.sequence.phase is Phase.PROMPT:
                self._prompt_chunk_done(work, result)
        self._book.step_done(step.number)

    def _is_live(self, work: Work) -> bool:
        return work.sequence.rid in self._book.queues

    def _decoded(self, sequence: Sequence, result: StepResult) -> None:
        sampled = result.sampled[sequence.rid]
        if self._is_broken(sequence, sampled, result):
            return
        finish = _recorded(sequence, sampled)
        self._book.tell(sequence, sampled, finish)
        if finish is not None:
            self._book.release(sequence, finish)

    def _prompt_chunk_done(self, work: Work, result: StepResult) -> None:
        sequence = work.sequence
        self._book.prompt_tokens += work.length
        if work.end == len(sequence.tokens):
            self._book.journal.mark(sequence.record, Stage.COMPUTED)
        sampled = result.sampled.get(sequence.rid)
        if sampled is not None and self._is_broken(sequence, sampled, result):
            return
        self._book.share(sequence)
        finish = None if sampled is None else _recorded(sequence, sampled)
        self._role.chunk_done(work, sampled, finish)

    def _is_broken(self, sequence: Sequence, sampled: Sampled, result: StepResult) -> bool:
        """End a sequence that no token was found for, or whose grammar failed; its neighbours in the step go on."""
        ending = _ending(sampled, result.problems.get(sequence.rid))
        if ending is None:
            return False
        self._role.end(sequence, ending)
        return True


def _ending(sampled: Sampled, problem: str | None) -> Ending | None:
    """Return why the sequence cannot go on; None if it can. A grammar that failed allows no token."""
    if sampled.fault is Fault.BROKEN_LOGITS:
        return failures.BROKEN_LOGITS
    if problem is not None:
        return failures.broken_grammar(problem)
    return failures.NO_TOKEN_LEFT if sampled.fault is Fault.NO_TOKEN_LEFT else None


def _recorded(sequence: Sequence, sampled: Sampled) -> FinishReason | None:
    """Append a token to its sequence and say whether it ends it."""
    sequence.tokens.append(sampled.token_id)
    return sequence.ends.finish(sampled.token_id, len(sequence.tokens) - sequence.prompt_length)
