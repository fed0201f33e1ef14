"""A random-weight Llama of 150 kB with a byte-level tokenizer: for tests that need no language."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT = 32, 2, 4, 2, 8, 64, 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "t"), ("Ġt", "he"))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_symbols() -> list[str]:
    """Return GPT-2's printable symbol of each byte value, index = byte."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def vocabulary() -> dict[str, int]:
    """Return token -> id: the special tokens are 0, 1, 2, then the 256 bytes, then the merges."""
    tokens = [*SPECIAL, *byte_symbols(), *(left + right for left, right in MERGES)]
    return {token: index for index, token in enumerate(tokens)}


def tokenizer_json() -> dict[str, object]:
    """Return the content of tokenizer.json."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary(), "merges": [list(pair) for pair in MERGES]},
    }


def config_json() -> dict[str, object]:
    """Return the content of config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": len(vocabulary()),
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Return float32 weights whose logits spread by about 3, so that greedy choices are no near-ties."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    def norm() -> np.ndarray:
        return (1 + 0.1 * random.standard_normal(HIDDEN)).astype(np.float32)

    vocab = len(vocabulary())
    tensors = {"model.embed_tokens.weight": random.standard_normal((vocab, HIDDEN)).astype(np.float32)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        tensors |= {
            at + "input_layernorm.weight": norm(),
            at + "self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            at + "post_attention_layernorm.weight": norm(),
            at + "mlp.gate_proj.weight": matrix(FFN, HIDDEN),
            at + "mlp.up_proj.weight": matrix(FFN, HIDDEN),
            at + "mlp.down_proj.weight": matrix(HIDDEN, FFN),
        }
    tensors["model.norm.weight"] = norm()
    tensors["lm_head.weight"] = matrix(vocab, HIDDEN, gain=3.0)
    return tensors


def write_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write a whole checkpoint into `folder`; the same seed gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    files = {
        "config.json": config_json(),
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": [2, 0]},
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[1],
            "eos_token": SPECIAL[2],
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory with a tiny random Llama: context 4096, vocabulary 264, eos ids 2 and 0."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny-model"))
