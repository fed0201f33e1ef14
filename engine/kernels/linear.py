"""Matrix products with a weight that stays, each in the way that this CPU does fast."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

WIDENED_ELEMENTS = 1 << 21
"""Of a weight that are in float32 at a time: 8 MB, so that a language model's head needs no copy of its size."""


class Linear:
    """`x @ weight.T + bias` for one fixed weight `[rows, columns]`.

    On a CPU that multiplies bf16 (AVX-512 and later) the weight is kept in oneDNN's blocked order only; packing it
    anew at every call costs a third of a decode step (SmolLM2, one thread: 29 ms of matrix products a step
    against 21 ms). Same results, bit for bit.

    On a CPU that does not (AVX2), torch's bf16 product runs at 9 GFLOP/s against 68 in float32 (one thread,
    512 rows): the weight is widened piece by piece, multiplied in float32, and the result rounded to bf16. One
    row alone is faster as it is (0.21 against 0.46 ms for 1,536 x 576).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias = bias
        is_cpu_bf16 = weight.device.type == "cpu" and weight.dtype == torch.bfloat16
        self._is_packed = is_cpu_bf16 and multiplies_bf16()
        self._is_widened = is_cpu_bf16 and not self._is_packed
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self._is_packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """Return `[..., rows]` for `x` `[..., columns]`."""
        if self._is_packed:
            result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self.bias, "none", [], "")
            return result
        if self._is_widened and x.numel() > x.shape[-1]:
            return widened_linear(x, self._weight, self.bias)
        return functional.linear(x, self._weight, self.bias)


def widened_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `x @ weight.T + bias` for bf16 operands, multiplied and summed in float32 and rounded to bf16 once."""
    wide = x.float()
    rows = max(1, WIDENED_ELEMENTS // weight.shape[1])
    product = torch.cat([functional.linear(wide, piece.float()) for piece in torch.split(weight, rows)], dim=-1)
    if bias is not None:
        product += bias
    return product.to(x.dtype)


def multiplies_bf16() -> bool:
    """Say whether this CPU has bf16 products that oneDNN uses."""
    return bool(torch.backends.mkldnn.is_available()) and bool(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
