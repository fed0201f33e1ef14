"""Matrix products with packed weights."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.linear import Linear


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
