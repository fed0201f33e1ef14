"""Random models of every architecture: the same logits as transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.model.checkpoint import open_checkpoint
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
MODELS: dict[str, tuple[type[PretrainedConfig], type[PreTrainedModel], dict[str, object]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama-tied": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True}),
    "llama-head-dim": (LlamaConfig, LlamaForCausalLM, {"head_dim": 16}),
    "llama3-rope": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LLAMA3_ROPE}),
    "linear-rope": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LINEAR_ROPE}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen2-tied": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 8}),
    "qwen3-tied": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16, "tie_word_embeddings": True}),
}


def saved(name: str, folder: Path, **how: object) -> Path:
    """Write a random model with transformers; biases and norms are random too, not at their neutral start."""
    config_type, model_type, changes = MODELS[name]
    torch.manual_seed(7)
    model = model_type(config_type(**(SIZES | changes)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder, **how)
    return folder


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
