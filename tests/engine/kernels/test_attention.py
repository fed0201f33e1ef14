"""Attention over pages against attention written out in float64, element by element."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.kernels.attention import TorchAttention
from engine.kernels.reference import causal_mask
from engine.model.batch import SequenceSlice

HEADS, GROUP, PAGES, SLOTS, DIM = 2, 3, 40, 4, 8
CONTIGUOUS, SCATTERED, FALLING = [5, 6, 7], [30, 2, 17], [9, 8, 7]


@pytest.fixture
def kv() -> Tensor:
    """One layer of random keys and values, float64."""
    shape = (2, HEADS, PAGES, SLOTS, DIM)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def queries(tokens: int, seed: int = 9) -> Tensor:
    """Return random queries `[tokens, heads, dim]`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((tokens, HEADS * GROUP, DIM), dtype=torch.float64, generator=generator)


def written_out(query: Tensor, kv: Tensor, pages: list[int], visible: int) -> list[list[float]]:
    """Attend from one token to the first `visible` tokens of a sequence, in plain Python."""
    result = []
    for head, vector in enumerate(query.tolist()):
        cells = [(pages[at // SLOTS], at % SLOTS) for at in range(visible)]
        keys = [kv[0, head // GROUP, page, slot].tolist() for page, slot in cells]
        values = [kv[1, head // GROUP, page, slot].tolist() for page, slot in cells]
        scores = [sum(a * b for a, b in zip(vector, key, strict=True)) / math.sqrt(DIM) for key in keys]
        weights = [math.exp(score - max(scores)) for score in scores]
        total = sum(weights)
        columns = zip(*values, strict=True)
        result.append([sum(w * v for w, v in zip(weights, column, strict=True)) / total for column in columns])
    return result


def piece(start: int, length: int, context: int, pages: list[int]) -> SequenceSlice:
    """Return a sequence's part of a step."""
    return SequenceSlice(start, length, context, torch.tensor(pages))


@pytest.mark.parametrize("pages", [CONTIGUOUS, SCATTERED, FALLING])
@pytest.mark.parametrize("context", [1, 4, 9, 12])
def test_decode(kv: Tensor, pages: list[int], context: int) -> None:
    """One new token sees its context, wherever the pages lie and however full the last one is."""
    q = queries(1)
    used = pages[: -(-context // SLOTS)]
    found = TorchAttention([piece(0, 1, context, used)], 1, kv)(q, kv)
    expected = torch.tensor([written_out(q[0], kv, used, context)], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("pages", [CONTIGUOUS, SCATTERED])
@pytest.mark.parametrize(("length", "context"), [(12, 12), (5, 11), (2, 10), (1, 7)])
def test_chunk(kv: Tensor, pages: list[int], length: int, context: int) -> None:
    """Each token of a chunk sees what came before it and itself, not what follows."""
    q = queries(length)
    used = pages[: -(-context // SLOTS)]
    found = TorchAttention([piece(0, length, context, used)], 0, kv)(q, kv)
    visible = range(context - length + 1, context + 1)
    rows = [written_out(q[row], kv, used, seen) for row, seen in enumerate(visible)]
    torch.testing.assert_close(found, torch.tensor(rows, dtype=torch.float64))


def test_a_mixed_step_equals_its_parts(kv: Tensor) -> None:
    """Decodes and chunks in one step give what each gives alone, bit for bit."""
    q = queries(2 + 5 + 3)
    parts = [
        piece(0, 1, 9, SCATTERED),
        piece(1, 1, 10, CONTIGUOUS),
        piece(2, 5, 11, [20, 11, 12]),
        piece(7, 3, 3, [33]),
    ]
    together = TorchAttention(parts, 2, kv)(q, kv)
    for index, part in enumerate(parts):
        alone = piece(0, part.length, part.context, part.pages.tolist())
        rows = q[part.start : part.start + part.length]
        found = TorchAttention([alone], int(index < 2), kv)(rows, kv)
        assert torch.equal(found, together[part.start : part.start + part.length])


def test_the_mask_hides_the_future_only() -> None:
    """Two tokens at positions 2 and 3 of 4: the first must not see the last."""
    mask = causal_mask(2, 4, torch.zeros(1))
    assert mask is not None
    assert mask.tolist() == [[0, 0, 0, -math.inf], [0, 0, 0, 0]]
