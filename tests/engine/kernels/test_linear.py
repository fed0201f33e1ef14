"""Matrix products with packed weights."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.linear import WIDENED_ELEMENTS, Linear, widened_linear


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 3, 40])
@pytest.mark.parametrize("has_bias", [False, True])
def test_product_is_that_of_the_plain_weight(dtype: torch.dtype, rows: int, has_bias: bool) -> None:
    """Packed or not, any number of rows gives the float64 product within the dtype's rounding."""
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(50, 33, generator=generator).to(dtype)
    bias = torch.randn(50, generator=generator).to(dtype) if has_bias else None
    x = torch.randn(rows, 33, generator=generator).to(dtype)
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    with torch.inference_mode():
        found = Linear(weight, bias)(x)
    assert found.dtype == dtype
    assert found.shape == (rows, 50)
    tolerance = {torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_weight_widened_in_pieces_gives_the_rounded_float32_product(has_bias: bool) -> None:
    """As on a CPU without bf16 products; the weight takes more than one piece."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(3000, 1000, generator=generator).bfloat16()
    bias = torch.randn(3000, generator=generator).bfloat16() if has_bias else None
    x = torch.randn(4, 1000, generator=generator).bfloat16()
    assert weight.numel() > WIDENED_ELEMENTS
    expected = x.float() @ weight.float().T + (0 if bias is None else bias.float())
    torch.testing.assert_close(widened_linear(x, weight, bias).float(), expected, atol=1e-3, rtol=2**-8)
