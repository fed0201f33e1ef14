"""Blocks of GGUF files as groups: the numbers that the `gguf` package makes of the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize

from engine.errors import ConfigError
from engine.kernels.cpu.step import CpuStep
from engine.model.checkpoint import open_checkpoint
from engine.model.gguf_blocks import GROUPED, grouped
from engine.model.grouped import GroupedWeight, stacked
from engine.model.loading import load_model
from engine.model.stored import StoredTensor
from tests.tiny_gguf import write_tiny_gguf

ROWS, COLUMNS = 20, 96


def stored_as(encoding: str, seed: int = 1) -> tuple[StoredTensor, bytearray, np.ndarray]:
    """Return a random matrix as stored bytes, and what these bytes mean."""
    numbers = np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    kind = GGMLQuantizationType[encoding]
    raw = quantize(numbers, kind)
    stored = StoredTensor("w", (ROWS, COLUMNS), encoding, Path("w"), 0, raw.nbytes)
    return stored, bytearray(raw.tobytes()), dequantize(raw, kind)


@pytest.mark.parametrize("encoding", GROUPED)
def test_groups_are_the_blocks_exactly(encoding: str) -> None:
    """Not a bit is lost between the file and the levels, scales and offsets."""
    stored, raw, expected = stored_as(encoding)
    weight = grouped(stored, raw)
    assert int(weight.levels.max()) < 1 << weight.bits
    torch.testing.assert_close(weight.dequantised(), torch.from_numpy(expected), atol=1e-7, rtol=1e-6)


def test_matrices_of_one_kind_stay_groups_together() -> None:
    """Query, key and value rows that read the same input."""
    parts = [grouped(*stored_as("Q4_1", seed)[:2]) for seed in (1, 2)]
    together = stacked(parts, torch.bfloat16)
    assert isinstance(together, GroupedWeight)
    assert torch.equal(together.dequantised(), torch.cat([part.dequantised() for part in parts]))


def test_matrices_of_several_kinds_become_floating_point() -> None:
    """Some files hold the values in more bits than the queries."""
    parts = [grouped(*stored_as(encoding)[:2]) for encoding in ("Q4_1", "Q8_0")]
    together = stacked(parts, torch.bfloat16)
    assert isinstance(together, torch.Tensor)
    assert together.dtype == torch.bfloat16
    assert together.shape == (2 * ROWS, COLUMNS)


def test_a_file_without_groups_is_refused(tmp_path: Path) -> None:
    """The message says what it holds and what to do."""
    path = write_tiny_gguf(tmp_path / "m.gguf", kind=GGMLQuantizationType.F16)
    with pytest.raises(ConfigError, match="has no tensors in Q4_0, Q4_1, Q8_0, only in F16, F32; leave the flag away"):
        load_model(open_checkpoint(path), "bfloat16", cpu_step="auto", quantization="gguf")


def test_without_the_step_torch_computes_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Never silently something else than was asked for."""
    path = write_tiny_gguf(tmp_path / "m.gguf", kind=GGMLQuantizationType.Q4_1)
    model = load_model(open_checkpoint(path), "bfloat16", cpu_step="off", quantization="gguf")
    assert not isinstance(model, CpuStep)
    assert "--quantization gguf has no effect: torch computes this model in bfloat16" in caplog.text
