"""Checkpoints of every architecture with random weights, written by transformers."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

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
UNEVEN_HEADS = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}
MODELS: dict[str, tuple[type[PretrainedConfig], type[PreTrainedModel], dict[str, object]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama-tied": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": True}),
    "llama-head-dim": (LlamaConfig, LlamaForCausalLM, {"head_dim": 16}),
    "llama3-rope": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LLAMA3_ROPE}),
    "linear-rope": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LINEAR_ROPE}),
    "llama-uneven": (LlamaConfig, LlamaForCausalLM, UNEVEN_HEADS),
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
