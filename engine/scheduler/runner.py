"""Carries out step plans on one rank: forward pass, prompt logprobs, sampling. Knows nothing of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import torch

from engine.kernels.device import computing_on
from engine.kvcache.pool import KVPool
from engine.messages import TokenLogprob
from engine.model.batch import ForwardBatch, SequenceSlice
from engine.model.decoder import ForwardPass
from engine.model.grammar import GrammarCompiler
from engine.model.sampling import Sampled, SamplingState, prompt_logprobs, sample
from engine.scheduler.step_plan import COMING, SamplingStart, SequenceStep, StepPlan, check_number


@dataclass(slots=True)
class StepResult:
    """What a step produced, by rid."""

    number: int
    sampled: dict[str, Sampled] = field(default_factory=dict)
    prompt_logprobs: dict[str, list[TokenLogprob]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Why a sequence's grammar cannot go on."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Rows:
    """The logit rows of one sequence: `scored` rows for prompt logprobs, then maybe one to sample from."""

    step: SequenceStep
    first: int
    scored: int


class Runner:
    """Owner of the model, the pool's contents and the sampling states. Used by one thread."""

    def __init__(
        self, model: ForwardPass, pool: KVPool, eos_ids: Sequence[int], grammars: GrammarCompiler, rank: int = 0
    ) -> None:
        self._model = model
        self._pool = pool
        self._eos_ids = eos_ids
        self._grammars = grammars
        self._samples = rank == 0
        self._states: dict[str, SamplingState] = {}
        self._next = 1

    def completed(self, plan: StepPlan) -> StepPlan:
        """Return the plan with the tokens that were still coming when it was made; rank 0, before `step`."""
        return msgspec.structs.replace(plan, sequences=[self._with_token(each) for each in plan.sequences])

    def step(self, plan: StepPlan) -> StepResult:
        """Compute a step; blocks for its duration (10 ms to a few seconds on CPU). Raises StepGap."""
        check_number(self._next, plan.number)
        self._next += 1
        for rid in plan.ended:
            self._states.pop(rid, None)
        rows, wanted = _logit_rows(plan)
        result = StepResult(plan.number)
        with computing_on(self._pool.tensor.device):
            logits = self._model.forward(self._batch(plan, wanted), self._pool.tensor)
            if self._samples:
                self._score(rows, logits, result)
                self._sample(rows, logits, result)
        return result

    def _with_token(self, step: SequenceStep) -> SequenceStep:
        if step.tokens != [COMING]:
            return step
        return msgspec.structs.replace(step, tokens=self._states[step.rid].output_ids[-1:])

    def _score(self, rows: list[_Rows], logits: torch.Tensor, result: StepResult) -> None:
        for item in rows:
            if (score := item.step.score) is not None:
                block = logits[item.first : item.first + item.scored]
                result.prompt_logprobs[item.step.rid] = prompt_logprobs(block, score.targets, score.alternatives)

    def _sample(self, rows: list[_Rows], logits: torch.Tensor, result: StepResult) -> None:
        sampling = [item for item in rows if item.step.samples]
        if not sampling:
            return
        states = [self._state(item.step) for item in sampling]
        chosen = logits[[item.first + item.scored for item in sampling]]
        for item, state, token in zip(sampling, states, sample(chosen, states), strict=True):
            result.sampled[item.step.rid] = token
            if state.grammar is not None and (problem := state.grammar.problem) is not None:
                result.problems[item.step.rid] = problem
            # At once: the next step may be in the queue already, and penalties and grammars need this token.
            state.record(token.token_id)

    def _state(self, step: SequenceStep) -> SamplingState:
        if step.sampling is not None:
            self._states[step.rid] = self._started(step.sampling)
        return self._states[step.rid]

    def _started(self, start: SamplingStart) -> SamplingState:
        text = start.params.grammar
        grammar = None if text is None else self._grammars.start(text)
        state = SamplingState(start.params, start.prompt_ids, self._eos_ids, grammar)
        for token_id in start.output_ids:
            state.record(token_id)
        return state

    def _batch(self, plan: StepPlan, wanted: list[int]) -> ForwardBatch:
        page_size = self._pool.layout.page_size
        tokens: list[int] = []
        positions: list[torch.Tensor] = []
        slots: list[torch.Tensor] = []
        slices = []
        for step in plan.sequences:
            pages = torch.tensor(step.pages)
            where = torch.arange(step.start, step.end)
            slices.append(SequenceSlice(len(tokens), len(step.tokens), step.end, pages))
            tokens += step.tokens
            positions.append(where)
            slots.append(pages[where // page_size] * page_size + where % page_size)
        device = self._pool.tensor.device
        return ForwardBatch(
            token_ids=torch.tensor(tokens, device=device),
            positions=torch.cat(positions).to(device),
            slots=torch.cat(slots).to(device),
            sequences=tuple(slices),
            decodes=plan.decodes,
            logit_rows=torch.tensor(wanted, dtype=torch.int64, device=device),
        )


def _logit_rows(plan: StepPlan) -> tuple[list[_Rows], list[int]]:
    """Return what to do with the logits, and which rows of the batch they are wanted of."""
    rows: list[_Rows] = []
    wanted: list[int] = []
    start = 0
    for step in plan.sequences:
        scored = 0 if step.score is None else len(step.score.targets)
        rows.append(_Rows(step, len(wanted), scored))
        if step.score is not None:
            first = start + step.score.first - step.start
            wanted += range(first, first + scored)
        if step.samples:
            wanted.append(start + len(step.tokens) - 1)
        start += len(step.tokens)
    return rows, wanted
