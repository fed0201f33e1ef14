"""Logprobs of given tokens."""

from __future__ import annotations

import math

import pytest
import torch

from engine.model.sampling import prompt_logprobs


def test_each_row_scores_the_token_that_follows() -> None:
    """Two rows of known probabilities, with more alternatives asked than there are tokens."""
    logits = torch.tensor([[0.2, 0.7, 0.1], [0.6, 0.1, 0.3]]).log()
    first, second = prompt_logprobs(logits, [2, 0], 5)
    assert (first.token_id, second.token_id) == (2, 0)
    assert first.logprob == pytest.approx(math.log(0.1), abs=1e-6)
    assert second.logprob == pytest.approx(math.log(0.6), abs=1e-6)
    assert [token_id for token_id, _ in first.top] == [1, 0, 2]
    assert [token_id for token_id, _ in second.top] == [0, 2, 1]
    assert second.top[0][1] == pytest.approx(second.logprob)


def test_no_alternatives_asked_none_given() -> None:
    """k = 0 is the token's own logprob only."""
    assert prompt_logprobs(torch.zeros(1, 4), [1], 0)[0].top == []


def test_large_logits_do_not_overflow() -> None:
    """Only differences matter."""
    scored = prompt_logprobs(torch.tensor([[1e4, 1e4]]), [0], 1)[0]
    assert scored.logprob == pytest.approx(math.log(0.5))
