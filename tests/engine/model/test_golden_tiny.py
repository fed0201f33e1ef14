"""Random models of every architecture: the same logits as transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.model.checkpoint import open_checkpoint
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun
from tests.engine.model.random_checkpoint import MODELS, saved


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Paged and chunked, every position of 75 has the reference's logits."""
    folder = saved(name, tmp_path)
    ids = torch.randint(0, 101, (75,), generator=torch.Generator().manual_seed(3))
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = reference(ids[None]).logits[0]
    run = PagedRun(load_model(open_checkpoint(folder), "float32"), "float32", tokens=128)
    number = run.open()
    head = run.prompt(number, ids[:72].tolist(), chunk=25)
    tail = [run.step([(number, [token])]) for token in ids[72:].tolist()]
    torch.testing.assert_close(torch.cat([head, *tail]), expected, atol=2e-4, rtol=2e-4)
    assert expected.std() > 0.5, "the reference must say something"


def test_a_sharded_checkpoint_is_the_same_model(tmp_path: Path) -> None:
    """Weights in several files with an index give the same fingerprint as in one."""
    one = open_checkpoint(saved("qwen2", tmp_path / "one"))
    many = open_checkpoint(saved("qwen2", tmp_path / "many", max_shard_size="50KB"))
    assert len({stored.file for stored in many.index}) > 1
    assert many.fingerprint() == one.fingerprint()
