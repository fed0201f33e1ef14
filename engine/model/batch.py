"""The input of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class SequenceSlice:
    """The part of a step that belongs to one sequence."""

    start: int
    """Row of its first new token in the step."""
    length: int
    """New tokens; 1 when decoding."""
    context: int
    """Tokens whose KV is in the pool after this step, the new ones included."""
    pages: torch.Tensor
    """int64 `[ceil(context / page_size)]`, pool pages in order; in host memory, whatever computes the step."""


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step: the new tokens of all its sequences, side by side.

    Its tensors are where the model is. The first `decodes` sequences have length 1 (rows 0 to decodes-1); prompt chunks
    follow.
    """

    token_ids: torch.Tensor
    """int64 `[tokens]`"""
    positions: torch.Tensor
    """int64 `[tokens]`"""
    slots: torch.Tensor
    """int64 `[tokens]`: `page * page_size + offset`, where each new token's KV goes."""
    sequences: tuple[SequenceSlice, ...]
    decodes: int
    logit_rows: torch.Tensor
    """int64 `[rows]`: the rows whose logits are wanted, may be empty."""
