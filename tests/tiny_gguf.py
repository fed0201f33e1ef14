"""The tiny model as a GGUF file, written with the `gguf` package's own writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize

from tests import tiny_model
from tests.tiny_model import CHAT_TEMPLATE, CONTEXT, FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, MERGES

GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """Return GGUF's name of a Hugging Face tensor."""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorder query or key rows as llama.cpp's converter does: row by row, to be independent of the
    engine.
    """
    size = weight.shape[0] // heads
    order = [
        head * size + half * (size // 2) + index
        for head in range(heads)
        for index in range(size // 2)
        for half in range(2)
    ]
    return np.ascontiguousarray(weight[order])


def write_tiny_gguf(
    path: Path,
    architecture: str = "llama",
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    pre: str = "gpt-2",
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """Write the file; matrices are stored as `kind`, norms as float32."""
    writer = GGUFWriter(str(path), architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    _add_tokenizer(writer, pre)
    for name, weight in (tiny_model.weights() if tensors is None else tensors).items():
        for part, heads in (("q_proj.weight", HEADS), ("k_proj.weight", KV_HEADS)):
            if name.endswith(part) and architecture == "llama":
                weight = interleaved(weight, heads)
        stored = kind if weight.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), quantize(weight, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: GGUFWriter, pre: str) -> None:
    tokens = list(tiny_model.vocabulary())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in tiny_model.SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
