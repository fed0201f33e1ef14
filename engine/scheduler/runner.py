"""Carries out a step plan: forward pass, prompt logprobs, sampling."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from engine.kvcache.pool import KVPool
from engine.messages import TokenLogprob
from engine.model.batch import ForwardBatch, SequenceSlice
from engine.model.decoder import LanguageModel
from engine.model.sampling import Sampled, prompt_logprobs, sample
from engine.scheduler.plan import StepPlan, Work


@dataclass(slots=True)
class StepResult:
    """What a step produced, by rid."""

    sampled: dict[str, Sampled] = field(default_factory=dict)
    prompt_logprobs: dict[str, list[TokenLogprob]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The logit rows of one piece of work: `scored` rows for prompt logprobs, then maybe one to sample from."""

    work: Work
    first: int
    scored: int
    targets: list[int]
    """The prompt tokens that follow the scored rows."""

    @property
    def samples(self) -> bool:
        return self.work.samples and not self.work.sequence.scores_only


class Runner:
    """Owner of the model and the pool's contents."""

    def __init__(self, model: LanguageModel, pool: KVPool) -> None:
        self._model = model
        self._pool = pool

    def step(self, plan: StepPlan) -> StepResult:
        """Compute a step; blocks for its duration (10 ms to a few seconds on CPU)."""
        rows, wanted = _logit_rows(plan)
        logits = self._model.forward(self._batch(plan, wanted), self._pool.tensor)
        result = StepResult()
        for item in rows:
            if item.scored:
                block = logits[item.first : item.first + item.scored]
                count = item.work.sequence.request.sampling.prompt_logprobs or 0
                result.prompt_logprobs[item.work.sequence.rid] = prompt_logprobs(block, item.targets, count)
        sampling = [item for item in rows if item.samples]
        if sampling:
            chosen = logits[[item.first + item.scored for item in sampling]]
            states = [item.work.sequence.sampling for item in sampling]
            for item, token in zip(sampling, sample(chosen, states), strict=True):
                result.sampled[item.work.sequence.rid] = token
        return result

    def _batch(self, plan: StepPlan, wanted: list[int]) -> ForwardBatch:
        page_size = self._pool.layout.page_size
        tokens: list[int] = []
        positions: list[torch.Tensor] = []
        slots: list[torch.Tensor] = []
        slices = []
        for work in plan.works:
            end = work.start + work.length
            context_pages = torch.tensor(work.sequence.pages[: -(-end // page_size)])
            where = torch.arange(work.start, end)
            slices.append(SequenceSlice(len(tokens), work.length, end, context_pages))
            tokens += work.sequence.tokens[work.start : end]
            positions.append(where)
            slots.append(context_pages[where // page_size] * page_size + where % page_size)
        return ForwardBatch(
            token_ids=torch.tensor(tokens),
            positions=torch.cat(positions),
            slots=torch.cat(slots),
            sequences=tuple(slices),
            decodes=len(plan.decodes),
            logit_rows=torch.tensor(wanted, dtype=torch.int64),
        )


def _logit_rows(plan: StepPlan) -> tuple[list[_Rows], list[int]]:
    """Return what to do with the logits, and which rows of the batch they are wanted of."""
    rows: list[_Rows] = []
    wanted: list[int] = []
    start = 0
    for work in plan.works:
        scored = _scored_positions(work)
        item = _Rows(work, len(wanted), len(scored), [work.sequence.tokens[at + 1] for at in scored])
        wanted += [start + at - work.start for at in scored]
        if item.samples:
            wanted.append(start + work.length - 1)
        rows.append(item)
        start += work.length
    return rows, wanted


def _scored_positions(work: Work) -> list[int]:
    """Return the positions in this work whose next token is a prompt token that wants a logprob."""
    params = work.sequence.request.sampling
    if params.prompt_logprobs is None:
        return []
    first = max(work.start, params.prompt_logprobs_start - 1)
    last = min(work.start + work.length, work.sequence.prompt_length - 1)
    return list(range(first, last))
