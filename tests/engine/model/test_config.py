"""The numbers of a model, from both kinds of file."""

from __future__ import annotations

import dataclasses

import pytest

from engine.errors import CheckpointError
from engine.model.config import check_config, llama3_divisors, tensor_shapes
from engine.model.hf_config import config_of
from tests.tiny_model import config_json


def test_llama3_divisors_keep_short_waves_and_stretch_long_ones() -> None:
    """Waves of up to 8 tokens stay, from 32 on they grow by the factor; between, the frequency is blended.

    head_dim 4, theta 16: the wavelengths are 2 pi = 6.28 and 8 pi = 25.13. With 32 original positions and
    bounds 1 and 4, the second makes 1.2732 waves: blend 0.0911, so its frequency is (0.9089 / 8 + 0.0911) =
    0.2047 of itself.
    """
    first, second = llama3_divisors(4, 16.0, factor=8.0, low=1.0, high=4.0, original_context=32)
    assert first == 1.0
    assert 1 / second == pytest.approx(0.20470, abs=1e-4)


def test_llama3_divisors_of_very_long_waves_are_the_factor() -> None:
    """A wave longer than the original context is stretched in full."""
    assert llama3_divisors(4, 1e6, factor=8.0, low=1.0, high=4.0, original_context=32)[1] == 8.0


def test_a_tiny_config_reads_as_written() -> None:
    """Every number of config.json arrives under its name; end tokens of both files are joined, each once."""
    config = config_of(config_json(), {"eos_token_id": [2, 0]})
    assert (config.layers, config.hidden, config.heads, config.kv_heads) == (2, 32, 4, 2)
    assert (config.head_dim, config.ffn, config.vocab, config.context_length) == (8, 64, 264, 4096)
    assert (config.rms_eps, config.rope_theta, config.rope_divisors) == (1e-5, 10000.0, None)
    assert (config.bos_id, config.eos_ids) == (1, (2, 0))
    assert not (config.tied_embeddings or config.qkv_bias or config.qk_norm)


def test_tensor_shapes_are_those_of_the_file() -> None:
    """Two layers of nine tensors, and the three outside."""
    shapes = tensor_shapes(config_of(config_json(), {}))
    assert len(shapes) == 21
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (16, 32)
    assert shapes["lm_head.weight"] == (264, 32)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "gemma3"}, "'gemma3' is not supported; supported are llama, qwen2, qwen3"),
        ({"model_type": None}, "supported are"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"use_sliding_window": True}, "sliding"),
        ({"quantization_config": {"bits": 4}}, "GGUF"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"num_attention_heads": 0}, "heads"),
        ({"num_key_value_heads": 3}, "cannot be shared"),
        ({"head_dim": 7}, "even"),
        ({"rms_norm_eps": 0}, "rms_eps"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"eos_token_id": 264}, "token 264 is not in the vocabulary of 264"),
        ({"eos_token_id": [2, -1]}, "token -1 is not in the vocabulary"),
    ],
)
def test_what_cannot_be_computed_is_refused(change: dict[str, object], word: str) -> None:
    """The message names the setting or says what is supported."""
    with pytest.raises(CheckpointError, match=word):
        config_of(config_json() | change, {})


def test_rotary_factors_must_fit_the_head() -> None:
    """A factor tensor of another length belongs to another model."""
    config = dataclasses.replace(config_of(config_json(), {}), rope_divisors=(1.0,) * 3)
    with pytest.raises(CheckpointError, match="3 rotary factors for 4"):
        check_config(config)
