"""Answers that must follow a grammar: which tokens may come next, by llguidance.

The state is a function of the grammar and the tokens so far, so decode rebuilds it from the first token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

log = logging.getLogger(__name__)


class GrammarState:
    """Where one answer is in its grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def problem(self) -> str | None:
        """Say why the grammar cannot go on (too complex, or it is no grammar); None while it can."""
        return self._matcher.get_error() if self._matcher.is_error() else None

    def mask(self, row: Tensor) -> Tensor:
        """Set the logits `[vocab]` of tokens that must not come next to -infinity, in place; 30 us to 2 ms."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little", count=row.shape[0]).astype(bool)
        row[torch.from_numpy(~allowed).to(row.device)] = -torch.inf
        return row

    def consume(self, token_id: int) -> None:
        """Go on by one token."""
        self._matcher.consume_token(token_id)


class UnusableGrammar(GrammarState):
    """A grammar that cannot be followed, for no fault of its own: its request fails, and no other."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    @property
    def problem(self) -> str | None:
        return self._problem

    def mask(self, row: Tensor) -> Tensor:
        """Change nothing; what is sampled is thrown away."""
        return row

    def consume(self, token_id: int) -> None:
        """Do nothing."""


class GrammarCompiler:
    """Makes states. What it needs of the tokenizer is built at the first grammar: about a second for 50,000 tokens."""

    def __init__(self, load_tokenizer: Callable[[], LLTokenizer]) -> None:
        self._load = load_tokenizer
        self._tokenizer: LLTokenizer | None = None

    def start(self, grammar: str) -> GrammarState:
        """Return the state before the first token; its `problem` is set when `grammar` is none.

        Also when the model's files, which are read for the first one, have gone since the start.
        """
        from llguidance import LLMatcher

        if self._tokenizer is None:
            try:
                self._tokenizer = self._load()
            except (CheckpointError, OSError, RuntimeError, ValueError) as error:
                log.error("no grammar can be followed: %s", error)
                return UnusableGrammar(f"the tokenizer of the model cannot be read any more: {error}")
        return GrammarState(LLMatcher(self._tokenizer, grammar, log_level=0))


def token_table(tokenizer_json: str, vocab_size: int, eos_ids: tuple[int, ...]) -> LLTokenizer:
    """Return what llguidance knows of the tokens, from the content of a tokenizer.json."""
    from llguidance import LLTokenizer

    return LLTokenizer(tokenizer_json, n_vocab=vocab_size, eos_token=list(eos_ids))
