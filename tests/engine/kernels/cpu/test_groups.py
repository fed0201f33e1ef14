"""The C++ step on 4- and 8-bit groups."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from engine.kernels.cpu.step import CpuStep
from engine.model.checkpoint import open_checkpoint
from engine.model.decoder import ForwardPass
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun
from tests.tiny_gguf import write_tiny_gguf

KINDS = (GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0)


def ids(count: int, seed: int = 3) -> list[int]:
    """Return random token ids of the tiny model."""
    return torch.randint(3, 250, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def in_groups(path: Path) -> ForwardPass:
    """Return the model for the C++ step, with the file's own blocks."""
    model = load_model(open_checkpoint(path), "bfloat16", cpu_step="auto", quantization="gguf")
    assert isinstance(model, CpuStep)
    return model


def scored(model: ForwardPass, dtype: str) -> Tensor:
    """Return the logits of 60 positions, the last ones decoded one by one."""
    run = PagedRun(model, dtype, tokens=64)
    number = run.open()
    head = run.prompt(number, ids(60)[:57], chunk=20)
    return torch.cat([head, *(run.step([(number, [token])]) for token in ids(60)[57:])])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_logits_are_those_of_the_dequantised_model(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    """Against float32: what is left is activations in 8 bits, about one percent of the logits' spread of 3."""
    path = write_tiny_gguf(tmp_path / "m.gguf", kind=kind)
    exact = scored(load_model(open_checkpoint(path), "float32"), "float32")
    found = scored(in_groups(path), "bfloat16")
    assert (found - exact).square().mean().sqrt() < 0.03 * exact.std()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_batch_mates_change_no_bit(kind: GGMLQuantizationType, tmp_path: Path) -> None:
    """Scales are a row's own: seven sequences together have the logits that each has alone."""
    model = in_groups(write_tiny_gguf(tmp_path / "m.gguf", kind=kind))
    lengths = (1, 16, 17, 31, 33, 40, 64)
    together = PagedRun(model, "bfloat16", tokens=512)
    numbers = [together.open() for _ in lengths]
    for number, length in zip(numbers, lengths, strict=True):
        together.prompt(number, ids(length, seed=length), chunk=128)
    found = together.step([(number, ids(1, seed=number)) for number in numbers])
    for number, length, logits in zip(numbers, lengths, found, strict=True):
        alone = PagedRun(model, "bfloat16", tokens=128)
        only = alone.open()
        alone.prompt(only, ids(length, seed=length), chunk=25)
        assert torch.equal(alone.step([(only, ids(1, seed=number))])[0], logits)


def test_a_broken_number_is_not_hidden_by_whole_ones(tmp_path: Path) -> None:
    """8-bit levels cannot be NaN: a group's scale is, so that the loop sees it and ends the sequence."""
    run = PagedRun(in_groups(write_tiny_gguf(tmp_path / "m.gguf", kind=KINDS[1])), "bfloat16", tokens=64)
    number = run.open()
    run.prompt(number, ids(20), chunk=32)
    run.kv[0, 0, 0, run.pages(number)[0]] = torch.nan
    assert not run.step([(number, [7])]).isfinite().any()
