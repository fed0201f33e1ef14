"""Weights in the order that the C++ step reads them; the layouts stand in `matmul.h`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.grouped import GROUP, GroupedWeight, Weight

BLOCK = 16


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """One weight `[rows, columns]`, rows padded to 16 and columns to 32 with zeros."""

    weight: Tensor
    """bf16 `[blocks, columns / 2, 16, 2]`, or uint8 `[blocks, groups, planes, 8 quads, 8 rows, 4]` of two halves."""
    scales: Tensor | None
    """Of groups: float16 `[blocks, groups, planes, scale | offset, 16]`."""
    bias: Tensor | None
    """float32 `[blocks * 16]`"""
    blocks: int
    columns: int
    planes: int
    """0: bf16. 1: groups of 4 bits. 2: of 8 bits, as two planes of 4."""


def packed(weight: Weight, bias: Tensor | None = None) -> PackedMatrix:
    """Pack a weight `[rows, columns]`, bf16 or in groups, with its bias `[rows]`."""
    if bias is not None:
        bias = functional.pad(bias.to(torch.float32), (0, -len(bias) % BLOCK))
    if isinstance(weight, GroupedWeight):
        return _packed_groups(weight, bias)
    weight = functional.pad(weight, (0, -weight.shape[1] % GROUP, 0, -weight.shape[0] % BLOCK))
    blocks, columns = weight.shape[0] // BLOCK, weight.shape[1]
    pairs = weight.view(blocks, BLOCK, columns // 2, 2).transpose(1, 2).contiguous()
    return PackedMatrix(pairs, None, bias, blocks, columns, planes=0)


def _packed_groups(weight: GroupedWeight, bias: Tensor | None) -> PackedMatrix:
    planes = weight.bits // 4
    rows, columns = weight.levels.shape
    blocks, groups = -(-rows // BLOCK), columns // GROUP
    levels = functional.pad(weight.levels, (0, 0, 0, -rows % BLOCK)).view(blocks, 2, 8, groups, 1, 8, 4)
    # level = 16 * high + low, so scale * level + offset is a sum over two planes of 4 bits.
    halves = torch.cat((levels & 15, levels >> 4), dim=4) if planes == 2 else levels
    first, second = halves.permute(1, 0, 3, 4, 5, 2, 6)
    zeros = torch.zeros_like(weight.offsets)
    pairs = [torch.stack((weight.scales, weight.offsets), dim=-1), torch.stack((weight.scales * 16, zeros), dim=-1)]
    scales = functional.pad(torch.stack(pairs[:planes], dim=2).view(rows, -1), (0, 0, 0, -rows % BLOCK))
    scales = scales.view(blocks, BLOCK, groups, planes, 2).permute(0, 2, 3, 4, 1).contiguous()
    return PackedMatrix((first | second << 4).contiguous(), scales, bias, blocks, columns, planes)
