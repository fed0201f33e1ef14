"""What counts as a near-tie between two answers in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.model.sampling import uniform
from tests.mixes.near_ties import DRAW, LOGITS, choices, parameters

SEED = 7
DRAWN = uniform(SEED, 2)
"""Of the third token."""


def chosen(row: torch.Tensor, **asked: Any) -> set[int]:
    """Return what may come third."""
    params = parameters({"max_new_tokens": 9, "sampling_seed": SEED, "ignore_eos": True} | asked, 4, len(row))
    return choices(row, params, [1, 1, 1, 1], [0, 0], (2,))


@pytest.mark.parametrize(("gap", "expected"), [(LOGITS / 10, {0, 1}), (LOGITS * 10, {0})])
def test_greedy_choices_lie_close_to_the_best(gap: float, expected: set[int]) -> None:
    """And no further."""
    assert chosen(torch.tensor([5.0, 5.0 - gap, 0.0, 1.0]), temperature=0) == expected


def test_penalties_come_before_the_comparison() -> None:
    """Token 0 was given twice; its penalty makes it equal to token 1."""
    row = torch.tensor([6.0, 5.0, 0.0, 1.0])
    assert chosen(row, temperature=0, frequency_penalty=0.5) == {0, 1}


@pytest.mark.parametrize(("distance", "expected"), [(DRAW / 10, {0, 3}), (DRAW * 10, {0})])
def test_a_draw_is_close_to_a_boundary_or_not(distance: float, expected: set[int]) -> None:
    """Tokens 0 and 3 share all probability; the draw lies that far below the boundary between them."""
    share = DRAWN + distance
    row = torch.tensor([share, 0.0, 0.0, 1 - share], dtype=torch.float64).log().float()
    assert chosen(row, temperature=1.0) == expected
