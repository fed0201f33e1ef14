"""Attention over pages in plain torch: correct everywhere, and what other kernels are compared with.

A layer's KV is `[2, H, P, S, D]`: K|V, KV heads, pages, slots of a page, head dim. Queries have `Hq = H * G`
heads; G neighbouring query heads share a KV head. `enable_gqa` of torch is never used: it repeats K and V in
memory and doubles a decode step (SmolLM2, 8 sequences).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class PageViews:
    """Where the KV of a step's sequences lies: worked out once a step, used in every layer.

    A sequence in neighbouring pages is read in place. The others are copied together, in one go.
    """

    def __init__(self, pages: Sequence[Tensor], contexts: Sequence[int], kv: Tensor) -> None:
        """`pages`: int64 `[n]` of each sequence, on the host; `contexts`: its tokens in the pool; `kv`: any layer."""
        _, self._heads, self._pages, self._slots, self._dim = kv.shape
        self._contexts = contexts
        self._first: list[int | None] = [_first_of_run(numbers) for numbers in pages]
        self._counts = [numbers.numel() for numbers in pages]
        scattered = [numbers for numbers, first in zip(pages, self._first, strict=True) if first is None]
        self._sizes = [2 * self._heads * numbers.numel() for numbers in scattered]
        rows = [self._rows_of(numbers) for numbers in scattered]
        self._rows = torch.cat(rows).to(kv.device) if rows else None

    def of(self, kv: Tensor) -> list[Tensor]:
        """Return K and V of every sequence in this layer, `[2, H, context, D]` each."""
        copied: Iterator[Tensor] = iter(())
        if self._rows is not None:
            flat = kv.view(2 * self._heads * self._pages, self._slots * self._dim)
            copied = iter(torch.split(flat.index_select(0, self._rows), self._sizes))
        return [
            self._shaped(next(copied) if first is None else kv[:, :, first : first + count], context)
            for first, count, context in zip(self._first, self._counts, self._contexts, strict=True)
        ]

    def _shaped(self, pages: Tensor, context: int) -> Tensor:
        return pages.reshape(2, self._heads, -1, self._dim)[:, :, :context]

    def _rows_of(self, pages: Tensor) -> Tensor:
        """Return the rows that hold the sequence when each page of each head is a row of the layer."""
        planes = torch.arange(2 * self._heads) * self._pages
        return (planes[:, None] + pages).reshape(-1)


def decode_attention(q: Tensor, keys_values: Sequence[Tensor]) -> Tensor:
    """Attend from one new token of each sequence to its whole context.

    `q` is `[B, Hq, D]`, `keys_values` holds B tensors `[2, H, context, D]`; returns `[B, Hq, D]`. A
    sequence's result does not depend on the others.
    """
    # The G query heads of a KV head take the place of G tokens: K and V are read once for all of them.
    folded = q.view(q.shape[0], 1, keys_values[0].shape[1], -1, q.shape[2])
    results = [
        scaled_dot_product_attention(queries, kv[:1], kv[1:]) for queries, kv in zip(folded, keys_values, strict=True)
    ]
    return torch.cat(results).view(q.shape)


def chunk_attention(q: Tensor, kv: Tensor, mask: Tensor | None) -> Tensor:
    """Attend from the newest T tokens of one sequence, each to the tokens before it and to itself.

    `q` is `[T, Hq, D]`, `kv` `[2, H, context, D]` with the T tokens last, `mask` as `causal_mask` made it;
    returns `[T, Hq, D]`.
    """
    length, q_heads, dim = q.shape
    heads, context = kv.shape[1], kv.shape[2]
    queries = q.view(length, heads, -1, dim).permute(1, 2, 0, 3)
    keys, values = kv.unsqueeze(2).expand(2, heads, q_heads // heads, context, dim)
    is_square = mask is None and length == context
    result = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=is_square)
    return result.permute(2, 0, 1, 3).reshape(length, q_heads, dim)


def causal_mask(length: int, context: int, like: Tensor) -> Tensor | None:
    """Return what to add to the scores, `[length, context]` in `like`'s dtype; None if none is needed.

    Made once a step: at 256 x 2,048 it would be a fiftieth of the step if every layer made its own.
    """
    if length in (1, context):
        return None
    future = torch.ones(length, context, dtype=torch.bool, device=like.device).triu(context - length + 1)
    return torch.zeros(length, context, dtype=like.dtype, device=like.device).masked_fill(future, -torch.inf)


def _first_of_run(pages: Tensor) -> int | None:
    """Return the first page if the pages are neighbours in rising order."""
    numbers = pages.tolist()
    first = numbers[0]
    return first if numbers == list(range(first, first + len(numbers))) else None
