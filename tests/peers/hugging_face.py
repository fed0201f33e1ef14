"""The default model as other engines read it: a Hugging Face directory made of its GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine.frontend.tokenizer import load_tokenizer
from engine.model.checkpoint import open_checkpoint


def write_directory(gguf: Path, folder: Path) -> Path:
    """Write config, tokenizer and bfloat16 weights (269 MB for SmolLM2) of a Llama; dequantised, so not the original's.

    Raises CheckpointError when the file is none that the engine reads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, tokenizer = open_checkpoint(gguf), load_tokenizer(gguf)
    config = checkpoint.config
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in checkpoint.tensors()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    end = config.eos_ids[0]
    files = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": config.hidden,
            "intermediate_size": config.ffn,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "vocab_size": config.vocab,
            "max_position_embeddings": config.context_length,
            "rms_norm_eps": config.rms_eps,
            "rope_theta": config.rope_theta,
            "hidden_act": "silu",
            "tie_word_embeddings": config.tied_embeddings,
            "bos_token_id": config.bos_id,
            "eos_token_id": end,
            "torch_dtype": "bfloat16",
        },
        "generation_config.json": {"bos_token_id": config.bos_id, "eos_token_id": list(config.eos_ids)},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": tokenizer.token_text(end),
            "chat_template": tokenizer.chat_template,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    return folder
