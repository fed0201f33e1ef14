"""When an answer ends by its tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.messages import FinishReason, SamplingParams


@dataclass(frozen=True, slots=True)
class EndRule:
    """One sequence's rule; needs neither logits nor a sampling state."""

    end_ids: frozenset[int]
    """Tokens that end the answer, once `min_tokens` are out."""
    min_tokens: int
    max_tokens: int

    @classmethod
    def of(cls, params: SamplingParams, eos_ids: Iterable[int]) -> EndRule:
        """Return the rule of a request to a model with these end-of-sequence tokens."""
        end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else frozenset(eos_ids))
        return cls(end_ids, params.min_tokens, params.max_tokens)

    def finish(self, token_id: int, outputs: int) -> FinishReason | None:
        """Return why the answer ends with `token_id`, its `outputs`-th token; None if it goes on."""
        if token_id in self.end_ids and outputs > self.min_tokens:
            return FinishReason.STOP
        if outputs >= self.max_tokens:
            return FinishReason.LENGTH
        return None
