"""What the OpenAI-style routes answer, as records."""

from __future__ import annotations

import msgspec

from engine.frontend.generation import Work
from engine.frontend.sequence import Piece


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Tally:
    """Counts tokens over the pieces of one request."""

    def __init__(self, work: Work) -> None:
        self._prompt_tokens = sum(len(prompt.token_ids) for prompt in work.prompts)
        self._completion_tokens = 0
        self._cached = [0] * len(work.prompts)
        self._choices = work.choices

    def add(self, piece: Piece) -> None:
        """Count a piece. The choices of one prompt share its prompt tokens, cached ones too."""
        self._completion_tokens += len(piece.token_ids)
        prompt = piece.index // self._choices
        self._cached[prompt] = max(self._cached[prompt], piece.cached_tokens)

    def usage(self) -> Usage:
        """Return the counts so far."""
        total = self._prompt_tokens + self._completion_tokens
        cached = PromptDetails(sum(self._cached))
        return Usage(self._prompt_tokens, self._completion_tokens, total, cached)
