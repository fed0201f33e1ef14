"""Weights as small whole numbers with a scale and an offset for each group of 32 columns, as GGUF files hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """A matrix `[rows, columns]`: number = scale * level + offset."""

    levels: Tensor
    """uint8 `[rows, columns]`: 0 to 15, or 0 to 255."""
    scales: Tensor
    """float16 `[rows, columns / 32]`"""
    offsets: Tensor
    """float16 `[rows, columns / 32]`"""
    bits: int
    """4 or 8."""

    def reordered(self, rows: Tensor) -> GroupedWeight:
        """Return the matrix with its rows in the order of the indices `rows`."""
        return GroupedWeight(self.levels[rows], self.scales[rows], self.offsets[rows], self.bits)

    def dequantised(self) -> Tensor:
        """Return float32 `[rows, columns]`."""
        groups = self.levels.float().view(*self.scales.shape, GROUP)
        numbers: Tensor = groups * self.scales.float()[..., None] + self.offsets.float()[..., None]
        return numbers.view(self.levels.shape)


Weight = Tensor | GroupedWeight
"""A matrix in floating point or in groups; vectors are always floating point."""


def plain(weight: Weight, dtype: torch.dtype) -> Tensor:
    """Return a floating-point tensor, whatever `weight` is."""
    return weight.dequantised().to(dtype) if isinstance(weight, GroupedWeight) else weight


def stacked(parts: Sequence[Weight], dtype: torch.dtype) -> Weight:
    """Return the rows of all parts as one matrix: in groups if all are, of the same bits, else in floating point."""
    grouped = [part for part in parts if isinstance(part, GroupedWeight)]
    if len(grouped) == len(parts) and len({part.bits for part in grouped}) == 1:
        levels, scales, offsets = (
            torch.cat([getattr(part, name) for part in grouped]) for name in ("levels", "scales", "offsets")
        )
        return GroupedWeight(levels, scales, offsets, grouped[0].bits)
    return torch.cat([plain(part, dtype) for part in parts])
