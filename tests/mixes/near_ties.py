"""Places where two sums of the same numbers in float32 may choose different tokens (DESIGN section 8).

A chunk or batch of another size sums in another order, which moves a logit by about 1e-5 and the boundary between two
tokens of a draw by about 1e-7. What differs there is counted; anywhere else it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import torch

from engine.frontend.bodies import GenerateKnobs
from engine.frontend.sampling import Length, Limits, Logprobs, choose_sampling
from engine.messages import SamplingParams
from engine.model import sampling
from engine.model.checkpoint import open_checkpoint
from engine.model.decoder import ForwardPass
from engine.model.loading import load_model
from engine.model.sampling import SamplingState, sample
from tests.engine.model.paged_run import PagedRun
from tests.mixes.requests import Request
from tests.mixes.ways import Answer

LOGITS = 1e-3
"""Greedy: how far two logits may lie apart."""
DRAW = 1e-6
"""Sampled: how far a draw may lie from the boundary between two tokens, in probability."""
STEPS = 8
CHUNK = 64


class Referee:
    """Scores the place where two answers part; loads the model when it is first asked."""

    def __init__(self, model: Path) -> None:
        self._path = model

    def is_near_tie(self, request: Request, one: Answer, other: Answer) -> bool:
        """Say whether both tokens at the first difference may be chosen. Answers without token ids never are."""
        if request.path != "/generate":
            return False
        # The first element says why it ended; one answer may be shorter.
        pairs = zip(one[1:], other[1:], strict=False)
        place = next((at for at, (mine, yours) in enumerate(pairs) if mine != yours), None)
        if place is None:
            return False
        prompt, before = request.body["input_ids"], [int(str(token)) for token in one[1 : 1 + place]]
        return {one[1 + place], other[1 + place]} <= self._choices(prompt, before, request.body["sampling_params"])

    @cached_property
    def _model(self) -> ForwardPass:
        return load_model(open_checkpoint(str(self._path)), "float32")

    def _choices(self, prompt: list[int], before: list[int], asked: dict[str, Any]) -> set[int]:
        run = PagedRun(self._model, "float32", len(prompt) + len(before))
        row = run.prompt(run.open(), prompt + before, CHUNK)[-1]
        known = self._model.config
        return choices(row, parameters(asked, len(prompt), known.vocab), prompt, before, known.eos_ids)


def parameters(asked: dict[str, Any], prompt_tokens: int, vocab: int) -> SamplingParams:
    """Return what the engine makes of a body's `sampling_params`."""
    whole = prompt_tokens + asked["max_new_tokens"]
    knobs = msgspec.convert(asked, GenerateKnobs)
    length = Length(knobs.max_new_tokens, "max_new_tokens")
    return choose_sampling(knobs, length, Logprobs(), prompt_tokens, Limits(vocab, whole, whole))


def choices(
    row: torch.Tensor, params: SamplingParams, prompt: Sequence[int], before: Sequence[int], eos_ids: Sequence[int]
) -> set[int]:
    """Return the tokens that logits `[vocab]`, off by a rounding, may give after `before`."""
    state = SamplingState(params, prompt, eos_ids)
    for token in before:
        state.record(token)
    if params.temperature == 0:
        scores = state.adjust(row)
        return set((scores >= scores.max() - LOGITS).nonzero()[:, 0].tolist())
    drawn = sampling.uniform(params.seed, len(before))
    found = set()
    for step in range(-STEPS, STEPS + 1):
        with mock.patch.object(sampling, "uniform", return_value=drawn + DRAW * step / STEPS):
            found.add(sample(row[None], [state])[0].token_id)
    return found
