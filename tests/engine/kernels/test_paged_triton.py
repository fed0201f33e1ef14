"""The Triton kernels against the torch reference, in Triton's interpreter, which is slow: small shapes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from engine.kernels.attention import TorchAttention
from engine.model.batch import SequenceSlice

PAGES, SLOTS = 48, 4


@pytest.fixture(scope="module")
def kernels() -> ModuleType:
    """Return the module, its kernels interpreted: `tests/conftest.py` asked for it before Triton was imported."""
    return importlib.import_module("engine.kernels.paged_triton")


def layer(heads: int, dim: int, dtype: torch.dtype) -> Tensor:
    """Return random keys and values of one layer."""
    shape = (2, heads, PAGES, SLOTS, dim)
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def step(*parts: tuple[int, int]) -> list[SequenceSlice]:
    """Return sequences of (new tokens, context), each on pages of its own in disorder."""
    order = torch.randperm(PAGES, generator=torch.Generator().manual_seed(2)).tolist()
    slices, start = [], 0
    for length, context in parts:
        pages = [order.pop() for _ in range(-(-context // SLOTS))]
        slices.append(SequenceSlice(start, length, context, torch.tensor(pages)))
        start += length
    return slices


def check(kernels: ModuleType, sequences: list[SequenceSlice], decodes: int, kv: Tensor, group: int) -> None:
    """Compare with the reference in float64, on the same rounded numbers."""
    tokens = sum(one.length for one in sequences)
    generator = torch.Generator().manual_seed(9)
    q = torch.randn((tokens, kv.shape[1] * group, kv.shape[4]), generator=generator).to(kv.dtype)
    expected = TorchAttention(sequences, decodes, kv.double())(q.double(), kv.double())
    found = kernels.TritonAttention(sequences, decodes, kv)(q, kv)
    assert found.dtype == kv.dtype
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[kv.dtype]
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("context", [1, 3, 4, 5, 32, 33])
def test_decode(kernels: ModuleType, context: int) -> None:
    """One new token sees its context, up to and past the borders of pages and of the kernel's blocks."""
    check(kernels, step((1, context)), 1, layer(2, 16, torch.float32), group=3)


@pytest.mark.parametrize(("length", "context"), [(9, 9), (5, 11), (30, 40), (2, 35)])
def test_chunk(kernels: ModuleType, length: int, context: int) -> None:
    """Each token of a chunk sees what came before it and itself, over several tiles."""
    check(kernels, step((length, context)), 0, layer(2, 16, torch.float32), group=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_mixed_step(kernels: ModuleType, dtype: torch.dtype) -> None:
    """Decodes and chunks of different lengths at once, in every dtype."""
    check(kernels, step((1, 9), (1, 30), (12, 20), (3, 3)), 2, layer(2, 16, dtype), group=2)


@pytest.mark.parametrize(("heads", "group", "dim"), [(1, 1, 16), (3, 3, 64), (1, 20, 16), (2, 2, 24)])
def test_shapes_of_heads(kernels: ModuleType, heads: int, group: int, dim: int) -> None:
    """SmolLM2's; more query heads than a tile has rows; a head that is no power of two."""
    check(kernels, step((1, 10), (6, 7)), 1, layer(heads, dim, torch.float32), group)


def test_a_long_context_is_put_together_from_splits(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of 8 tokens, two at once: some decodes have one, some five, one of them not full. Chunks have one."""
    monkeypatch.setattr(kernels, "SPLIT_TOKENS", 8)
    monkeypatch.setattr(kernels, "SPLITS_AT_ONCE", 2)
    monkeypatch.setattr(kernels, "KEYS", 4)
    check(kernels, step((1, 3), (1, 39), (7, 25)), 2, layer(2, 16, torch.float32), group=3)


def test_the_kernels_compile_for_gpus(tmp_path: Path) -> None:
    """What the interpreter runs is also what the compiler takes; it needs no GPU. Nothing of it is ever run here."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.engine.kernels.compile_for_gpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("*.cubin"))) == 6
