"""From logits to tokens.

Random numbers are a function of (seed, output position) only, and each row is worked on alone: a sequence's
tokens do not depend on what it is batched with, nor on which engine computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from engine.messages import SamplingParams, TokenLogprob
from engine.model.logprobs import prompt_logprobs, token_logprobs
from engine.model.sampling_state import SamplingState

__all__ = ["Fault", "Sampled", "SamplingState", "prompt_logprobs", "sample"]

FIRST_CANDIDATES = 128
"""Among how many of the best a nucleus is looked for at first. A full sort costs twenty times more."""


class Fault(StrEnum):
    """Why a token means nothing, so that its request must fail."""

    BROKEN_LOGITS = "broken_logits"
    """The model's own logits hold NaN or infinity."""
    NO_TOKEN_LEFT = "no_token_left"
    """They are sound, but what the request asks for (barred ends, bias, penalties, a grammar) leaves no token."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token, and its logprob when the request asked for it. With a `fault` it is some id of the vocabulary."""

    token_id: int
    logprob: TokenLogprob | None
    fault: Fault | None = None


@torch.inference_mode()
def sample(logits: Tensor, states: Sequence[SamplingState]) -> list[Sampled]:
    """Choose the next token of each sequence from float32 logits `[B, vocab]`; records nothing.

    Greedy rows without extras cost one argmax together; a random row costs 0.2 ms at a vocabulary of 49,152.
    """
    best = logits.argmax(dim=-1)
    chosen: list[int] = best.tolist()
    # NaN counts as the largest, so the best logit is finite only if there is neither NaN nor +infinity.
    finite: list[bool] = logits.gather(1, best[:, None])[:, 0].isfinite().tolist()
    faults = [None if good else Fault.BROKEN_LOGITS for good in finite]
    if all(state.is_plain_greedy for state in states):
        return [Sampled(token_id, None, fault) for token_id, fault in zip(chosen, faults, strict=True)]
    for index, (row, state) in enumerate(zip(logits, states, strict=True)):
        if finite[index] and (state.params.temperature > 0 or state.is_adjusted):
            token_id = _chosen(row, state)
            if token_id is None:
                faults[index] = Fault.NO_TOKEN_LEFT
            else:
                chosen[index] = token_id
    logprobs = _logprobs(logits, states, chosen)
    return [
        Sampled(token_id, logprobs.get(index), fault)
        for index, (token_id, fault) in enumerate(zip(chosen, faults, strict=True))
    ]


def _chosen(row: Tensor, state: SamplingState) -> int | None:
    """Return the token of one sound row; None when what the request asks for leaves none."""
    if state.is_adjusted:
        row = state.adjust(row)
    best = int(row.argmax())
    if not row[best].isfinite():  # NaN counts as the largest
        return None
    if state.params.temperature == 0:
        return best
    return _drawn(row - row[best], state.params, len(state.output_ids))


def _logprobs(logits: Tensor, states: Sequence[SamplingState], chosen: Sequence[int]) -> dict[int, TokenLogprob]:
    """Return row -> logprob for the rows that want one; one call for each number of alternatives."""
    wanted: dict[int, list[int]] = {}
    for index, state in enumerate(states):
        if state.params.logprobs:
            wanted.setdefault(state.params.top_logprobs, []).append(index)
    return {
        index: logprob
        for alternatives, rows in wanted.items()
        for index, logprob in zip(
            rows, token_logprobs(logits[rows], [chosen[row] for row in rows], alternatives), strict=True
        )
    }


def uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) that depends on nothing else (Philox 4x64, counter mode, 53 bits)."""
    bits = int(np.random.Philox(key=seed % 2**64, counter=position).random_raw())
    return (bits >> 11) * 2.0**-53


def _drawn(row: Tensor, params: SamplingParams, position: int) -> int | None:
    """Draw by the inverse of the cumulative distribution; None when it is none.

    `row` has 0 for its maximum, so that a tiny temperature cannot overflow upwards.
    """
    probabilities = torch.softmax(row / params.temperature, dim=-1)
    candidates = None
    if params.top_k or params.top_p < 1 or params.min_p > 0:
        probabilities, candidates = _filtered(probabilities, params)
    cumulative = probabilities.cumsum(0, dtype=torch.float64)
    if not cumulative[-1].isfinite():
        return None
    target = uniform(params.seed, position) * cumulative[-1:]
    index = torch.searchsorted(cumulative, target, right=True)
    return int(index if candidates is None else candidates[index])


def _filtered(probabilities: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Return the kept probabilities, best first, and their ids: top-k, of that top-p, then min-p."""
    best, ids = _nucleus_candidates(probabilities, params)
    before = best.cumsum(0, dtype=torch.float64) - best
    total = best.sum(dtype=torch.float64) if params.top_k else 1.0
    kept = (before < params.top_p * total) & (best >= params.min_p * best[0])
    kept[0] = True
    count = int(kept.sum())
    return best[:count], ids[:count]


def _nucleus_candidates(probabilities: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Return as many of the best as the filters can need."""
    vocab = probabilities.shape[0]
    if params.top_k:
        return probabilities.topk(min(params.top_k, vocab))
    count = min(FIRST_CANDIDATES, vocab)
    while True:
        best, ids = probabilities.topk(count)
        is_enough = float(best.sum(dtype=torch.float64)) >= params.top_p
        is_below = float(best[-1]) < params.min_p * float(best[0])
        if is_enough or is_below or count == vocab:
            return best, ids
        count = min(8 * count, vocab)
