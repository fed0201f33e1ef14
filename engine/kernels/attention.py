"""Attention of one step: the place where kernels are chosen.

The C++ step of `engine.kernels.cpu` does not come here: it has an attention of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.kernels.reference import PageViews, causal_mask, chunk_attention, decode_attention
from engine.model.batch import SequenceSlice


class Attention(Protocol):
    """Attention of one step, called in every layer."""

    def __call__(self, q: Tensor, kv: Tensor) -> Tensor:
        """Return `[tokens, Hq, D]` for queries of that shape; `kv` holds the new tokens already."""


def step_attention(sequences: Sequence[SequenceSlice], decodes: int, kv: Tensor) -> Attention:
    """Return the attention for these sequences on `kv`'s device: Triton's on CUDA where there is Triton, else torch's.

    `kv` is any layer `[2, H, P, S, D]`; the first `decodes` sequences have one new token each. float64 stays with
    torch: tensor cores have no use for it.
    """
    if kv.is_cuda and kv.dtype != torch.float64 and importlib.util.find_spec("triton") is not None:
        # Imported here: it takes 0.5 s, and a CPU has no use for it.
        from engine.kernels.paged_triton import TritonAttention

        return TritonAttention(sequences, decodes, kv)
    return TorchAttention(sequences, decodes, kv)


class TorchAttention:
    """Attention over the pages of a step's sequences; made once a step, called in every layer."""

    def __init__(self, sequences: Sequence[SequenceSlice], decodes: int, kv: Tensor) -> None:
        """`kv` is any layer `[2, H, P, S, D]`; the first `decodes` sequences have one new token each."""
        self._decodes = decodes
        self._views = PageViews([one.pages for one in sequences], [one.context for one in sequences], kv)
        chunks = sequences[decodes:]
        self._rows = [slice(one.start, one.start + one.length) for one in chunks]
        self._masks = [causal_mask(one.length, one.context, kv) for one in chunks]

    def __call__(self, q: Tensor, kv: Tensor) -> Tensor:
        """Return `[tokens, Hq, D]` for queries of that shape; `kv` holds the new tokens already."""
        views = self._views.of(kv)
        parts = [decode_attention(q[: self._decodes], views[: self._decodes])] if self._decodes else []
        for rows, mask, view in zip(self._rows, self._masks, views[self._decodes :], strict=True):
            parts.append(chunk_attention(q[rows], view, mask))
        return torch.cat(parts) if len(parts) > 1 else parts[0]
