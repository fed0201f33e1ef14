"""What a model is: the numbers that shape its computation, whatever file they came from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import CheckpointError


class Architecture(StrEnum):
    """The decoder families this engine computes."""

    LLAMA = "llama"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One decoder-only transformer; names follow the field, units are elements."""

    architecture: Architecture
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_length: int
    rms_eps: float
    rope_theta: float
    rope_divisors: tuple[float, ...] | None
    """What each of the head_dim / 2 rotary frequencies is divided by (context extension); None: by 1."""
    tied_embeddings: bool
    """The output projection is the embedding table."""
    qkv_bias: bool
    qk_norm: bool
    """Queries and keys pass an RMS norm over each head (Qwen3)."""
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Tokens that end an answer, the main one first; may be empty."""

    @property
    def q_rows(self) -> int:
        """Rows of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv_rows(self) -> int:
        """Rows of the key projection, and of the value projection."""
        return self.kv_heads * self.head_dim


def architecture_named(name: str) -> Architecture:
    """Return the architecture, or raise CheckpointError that names what is supported."""
    try:
        return Architecture(name)
    except ValueError:
        supported = ", ".join(Architecture)
        raise CheckpointError(f"architecture {name!r} is not supported; supported are {supported}") from None


def check_config(config: ModelConfig) -> ModelConfig:
    """Return `config`, or raise CheckpointError when its numbers cannot belong together."""
    for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_length"):
        if getattr(config, name) < 1:
            raise CheckpointError(f"the model's {name} is {getattr(config, name)}; it must be positive")
    for token_id in config.eos_ids:
        if not 0 <= token_id < config.vocab:
            raise CheckpointError(f"the end token {token_id} is not in the vocabulary of {config.vocab}")
    if config.heads % config.kv_heads:
        raise CheckpointError(f"{config.heads} query heads cannot be shared by {config.kv_heads} KV heads")
    if config.head_dim % 2:
        raise CheckpointError(f"head_dim is {config.head_dim}; rotary positions need an even one")
    if not (0 < config.rms_eps < 1 and config.rope_theta > 0):
        raise CheckpointError(f"rms_eps {config.rms_eps} or rope_theta {config.rope_theta} is out of range")
    if config.rope_divisors is not None and len(config.rope_divisors) != config.head_dim // 2:
        raise CheckpointError(
            f"{len(config.rope_divisors)} rotary factors for {config.head_dim // 2} frequencies; "
            "the checkpoint is inconsistent"
        )
    return config


def llama3_divisors(
    head_dim: int, theta: float, factor: float, low: float, high: float, original_context: int
) -> tuple[float, ...]:
    """Return the rotary divisors of Llama 3.1: 1 for short waves, `factor` for long ones, a blend between.

    `low` and `high` are wave counts within `original_context` (config.json: low_ and high_freq_factor).
    """
    divisors = []
    for index in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * index / head_dim)
        blend = (original_context / wavelength - low) / (high - low)
        blend = min(1.0, max(0.0, blend))
        divisors.append(1 / ((1 - blend) / factor + blend))
    return tuple(divisors)


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the canonical (Hugging Face) name and shape of every tensor the model needs."""
    hidden, ffn = config.hidden, config.ffn
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (config.q_rows, hidden),
        "self_attn.k_proj.weight": (config.kv_rows, hidden),
        "self_attn.v_proj.weight": (config.kv_rows, hidden),
        "self_attn.o_proj.weight": (hidden, config.q_rows),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    if config.qkv_bias:
        rows = {"q": config.q_rows, "k": config.kv_rows, "v": config.kv_rows}
        layer |= {f"self_attn.{name}_proj.bias": (count,) for name, count in rows.items()}
    if config.qk_norm:
        layer |= {f"self_attn.{name}_norm.weight": (config.head_dim,) for name in ("q", "k")}
    for index in range(config.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes
