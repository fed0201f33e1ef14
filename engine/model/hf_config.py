"""config.json of Hugging Face models to `ModelConfig`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import CheckpointError
from engine.model.config import Architecture, ModelConfig, architecture_named, check_config, llama3_divisors

UNSUPPORTED = {
    "attention_bias": "bias in all attention projections",
    "mlp_bias": "bias in the feed-forward part",
}
"""Switches that would change the computation, for all architectures we know."""


@dataclass(frozen=True, slots=True)
class Json:
    """Typed look-ups in a JSON object; a wrong type is a CheckpointError that names the key."""

    content: dict[str, Any]
    source: str

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number; `default` also stands for null."""
        value = self.content.get(key)
        value = default if value is None else value
        if value is None:
            raise CheckpointError(f"{self.source} lacks {key}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"{key} in {self.source} is {str(value)[:60]!r}; a number was expected")
        return value

    def tokens(self, key: str) -> tuple[int, ...]:
        """Return token ids written as one number, a list, or null."""
        value = self.content.get(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(item, int) for item in values):
            raise CheckpointError(f"{key} in {self.source} is {str(value)[:60]!r}; token ids were expected")
        return tuple(values)

    def object(self, key: str) -> Json | None:
        """Return a nested object, or None for null or absent."""
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CheckpointError(f"{key} in {self.source} is {str(value)[:60]!r}; an object was expected")
        return Json(value, f"{key} in {self.source}")


def config_of(content: dict[str, Any], generation: dict[str, Any]) -> ModelConfig:
    """Return the configuration; `generation` is generation_config.json, which may add end tokens.

    Raises CheckpointError for what is missing, wrong, or not computed by this engine.
    """
    architecture = architecture_named(str(content.get("model_type")))
    _refuse_unsupported(content)
    config = Json(content, "config.json")
    heads, hidden = int(config.number("num_attention_heads")), int(config.number("hidden_size"))
    head_dim = int(config.number("head_dim", hidden // max(1, heads)))
    # transformers 5 moved theta and scaling into rope_parameters.
    rope = config.object("rope_parameters") or config.object("rope_scaling")
    theta = (rope or config).number("rope_theta", config.number("rope_theta", 10000.0))
    ends = config.tokens("eos_token_id") + Json(generation, "generation_config.json").tokens("eos_token_id")
    begins = config.tokens("bos_token_id")
    return check_config(
        ModelConfig(
            architecture=architecture,
            layers=int(config.number("num_hidden_layers")),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.number("num_key_value_heads", heads)),
            head_dim=head_dim,
            ffn=int(config.number("intermediate_size")),
            vocab=int(config.number("vocab_size")),
            context_length=int(config.number("max_position_embeddings", 2048)),
            rms_eps=config.number("rms_norm_eps", 1e-6),
            rope_theta=theta,
            rope_divisors=_divisors(rope, head_dim, theta),
            tied_embeddings=bool(content.get("tie_word_embeddings", False)),
            qkv_bias=architecture is Architecture.QWEN2,
            qk_norm=architecture is Architecture.QWEN3,
            bos_id=begins[0] if begins else None,
            eos_ids=tuple(dict.fromkeys(ends)),
        )
    )


def _refuse_unsupported(content: dict[str, Any]) -> None:
    for key, meaning in UNSUPPORTED.items():
        if content.get(key):
            raise CheckpointError(f"{key} in config.json is set: {meaning} is not supported")
    if content.get("use_sliding_window"):
        raise CheckpointError("use_sliding_window in config.json is set: sliding windows are not supported")
    if (activation := content.get("hidden_act", "silu")) != "silu":
        raise CheckpointError(f"hidden_act in config.json is {activation!r}; supported is silu")
    if content.get("quantization_config"):
        raise CheckpointError("quantised safetensors are not supported; give bf16 or float32 weights, or a GGUF")
    if content.get("partial_rotary_factor", 1.0) not in (None, 1.0):
        raise CheckpointError("partial_rotary_factor in config.json: rotary over a part of the head is not supported")


def _divisors(rope: Json | None, head_dim: int, theta: float) -> tuple[float, ...] | None:
    kind = "default" if rope is None else rope.content.get("rope_type", rope.content.get("type", "default"))
    if rope is None or kind == "default":
        return None
    if kind == "linear":
        return (float(rope.number("factor")),) * (head_dim // 2)
    if kind == "llama3":
        return llama3_divisors(
            head_dim,
            theta,
            factor=rope.number("factor"),
            low=rope.number("low_freq_factor"),
            high=rope.number("high_freq_factor"),
            original_context=int(rope.number("original_max_position_embeddings")),
        )
    raise CheckpointError(f"rope scaling {kind!r} is not supported; supported are linear and llama3")
