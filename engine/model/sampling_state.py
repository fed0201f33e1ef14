"""What the choice of a sequence's next token depends on beside its logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.messages import SamplingParams
from engine.model.end_rule import EndRule
from engine.model.grammar import GrammarState


class SamplingState:
    """One sequence's parameters and output so far.

    A function of prompt and output alone: decode rebuilds it from the prompt and the first token.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        eos_ids: Sequence[int],
        grammar: GrammarState | None = None,
    ) -> None:
        self.params = params
        self.output_ids: list[int] = []
        self.ends = EndRule.of(params, eos_ids)
        self.grammar = grammar
        self._prompt_ids = prompt_ids
        self._has_penalties = (
            params.presence_penalty != 0 or params.frequency_penalty != 0 or params.repetition_penalty != 1
        )
        self._counts: Tensor | None = None
        self._seen: Tensor | None = None

    def record(self, token_id: int) -> None:
        """Append an output token. `sample` does not: the caller decides what is part of the answer."""
        self.output_ids.append(token_id)
        if self.grammar is not None:
            self.grammar.consume(token_id)
        if self._counts is not None and self._seen is not None:
            self._counts[token_id] += 1
            self._seen[token_id] += 1

    @property
    def is_plain_greedy(self) -> bool:
        """The next token is the best logit as the model gave it, and nothing else is asked."""
        return self.params.temperature == 0 and not self.params.logprobs and not self.is_adjusted

    @property
    def is_adjusted(self) -> bool:
        """`adjust` would change the next logits."""
        return bool(self._has_penalties or self.params.logit_bias or self._is_end_barred or self.grammar is not None)

    @property
    def _is_end_barred(self) -> bool:
        return len(self.output_ids) < self.params.min_tokens and bool(self.ends.end_ids)

    def adjust(self, row: Tensor) -> Tensor:
        """Return the logits `[vocab]` after penalties, bias, barred end tokens and the grammar, in that order."""
        row = self._penalised(row) if self._has_penalties else row.clone()
        if self.params.logit_bias:
            ids = torch.tensor(list(self.params.logit_bias), device=row.device)
            row[ids] += torch.tensor(list(self.params.logit_bias.values()), device=row.device)
        if self._is_end_barred:
            row[torch.tensor(list(self.ends.end_ids), device=row.device)] = -torch.inf
        return row if self.grammar is None else self.grammar.mask(row)

    def _penalised(self, row: Tensor) -> Tensor:
        """Repetition counts prompt and output (CTRL, arXiv 1909.05858), the others output only (OpenAI)."""
        params = self.params
        if self._counts is None or self._seen is None:
            self._counts = _counts(self.output_ids, row)
            self._seen = _counts([*self._prompt_ids, *self.output_ids], row)
        repeated = torch.where(row > 0, row / params.repetition_penalty, row * params.repetition_penalty)
        row = torch.where(self._seen > 0, repeated, row)
        row -= params.frequency_penalty * self._counts
        row -= params.presence_penalty * (self._counts > 0)
        return row


def _counts(ids: Sequence[int], like: Tensor) -> Tensor:
    """Return how often each token of the vocabulary occurs, float32 `[vocab]`."""
    # Not an inference tensor, though `sample` runs in inference mode: `record` changes it later, outside.
    with torch.inference_mode(False):
        counted = torch.bincount(torch.tensor(ids, dtype=torch.int64), minlength=like.shape[0])
        return counted.to(device=like.device, dtype=torch.float32)
