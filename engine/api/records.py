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
        self._cached: dict[int, int] = {}
        """By sequence."""
        self._choices = work.choices

    def add(self, piece: Piece) -> None:
        """Count a piece."""
        self._completion_tokens += len(piece.token_ids)
        self._cached[piece.index] = max(self._cached.get(piece.index, 0), piece.cached_tokens)

    def usage(self) -> Usage:
        """Return the counts so far.

        Choices share the tokens of their prompt. Cached is what the first of them found: the others find its work.
        """
        total = self._prompt_tokens + self._completion_tokens
        least: dict[int, int] = {}
        for index, cached in self._cached.items():
            prompt = index // self._choices
            least[prompt] = min(least.get(prompt, cached), cached)
        details = PromptDetails(sum(least.values()))
        return Usage(self._prompt_tokens, self._completion_tokens, total, details)
