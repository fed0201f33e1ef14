"""From a checkpoint to a model that computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.errors import ConfigError
from engine.model.batch import ForwardBatch, SequenceSlice
from engine.model.checkpoint import open_checkpoint
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun

IDS = [1, 100, 35, 77, 200, 13, 99, 42, 250, 3, 66, 5, 8, 120, 33, 71, 90, 17, 64, 2]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-4), ("bfloat16", 0.35)])
def test_every_dtype_computes_the_same_model(tiny_model_dir: Path, dtype: str, tolerance: float) -> None:
    """Logits are close to those of float32 weights: a spread of 3, rounded to 8 bits in bf16."""
    checkpoint = open_checkpoint(tiny_model_dir)
    logits = {}
    for name in ("float32", dtype):
        run = PagedRun(load_model(checkpoint, name), name, tokens=64)
        logits[name] = run.prompt(run.open(), IDS, chunk=7)
    torch.testing.assert_close(logits[dtype].float(), logits["float32"], atol=tolerance, rtol=0)
    assert logits[dtype].dtype == (torch.float64 if dtype == "float64" else torch.float32)


def test_an_unknown_dtype_is_named(tiny_model_dir: Path) -> None:
    """With the ones that exist."""
    with pytest.raises(ConfigError, match="'float16' is not supported; choose one of bfloat16"):
        load_model(open_checkpoint(tiny_model_dir), "float16")


def test_only_the_wanted_rows_have_logits(tiny_model_dir: Path) -> None:
    """Any choice of rows, in any order, or none at all: the KV is written all the same."""
    model = load_model(open_checkpoint(tiny_model_dir), "float32")
    run = PagedRun(model, "float32", tokens=64)
    every = run.prompt(run.open(), IDS, chunk=32)
    for wanted in ([19, 4], []):
        kv = torch.zeros_like(run.kv)
        sequence = SequenceSlice(0, 20, 20, torch.tensor([2, 0]))
        slots = torch.cat([torch.arange(32, 48), torch.arange(4)])
        rows = torch.tensor(wanted, dtype=torch.int64)
        batch = ForwardBatch(torch.tensor(IDS), torch.arange(20), slots, (sequence,), 0, rows)
        torch.testing.assert_close(model.forward(batch, kv), every[rows])
        assert kv[:, :, :, 2].abs().amin() > 0
        assert kv[:, :, :, 0, :4].abs().amin() > 0
        assert kv[:, :, :, 0, 4:].abs().amax() == 0
        assert kv[:, :, :, 1].abs().amax() == 0
