"""Weights in the order that the C++ step reads them; the layouts stand in `matmul.h`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 16
GROUP = 32


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """One weight `[rows, columns]`, rows padded to 16 and columns to 32 with zeros."""

    weight: Tensor
    """bf16 `[blocks, columns / 2, 16, 2]`"""
    bias: Tensor | None
    """float32 `[blocks * 16]`"""
    blocks: int
    columns: int


def packed(weight: Tensor, bias: Tensor | None = None) -> PackedMatrix:
    """Pack a bf16 weight `[rows, columns]` with its bias `[rows]`."""
    rows, columns = weight.shape
    weight = functional.pad(weight, (0, -columns % GROUP, 0, -rows % BLOCK))
    blocks, columns = weight.shape[0] // BLOCK, weight.shape[1]
    pairs = weight.view(blocks, BLOCK, columns // 2, 2).transpose(1, 2).contiguous()
    return PackedMatrix(pairs, _packed_bias(bias), blocks, columns)


def _packed_bias(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else functional.pad(bias.to(torch.float32), (0, -len(bias) % BLOCK))
