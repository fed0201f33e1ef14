"""GGUF checkpoints: metadata to configuration, tensor table to index."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CheckpointError
from engine.model.config import Architecture, ModelConfig, architecture_named, check_config
from engine.model.gguf_blocks import block_length, decoder, encoding, grouped_decoder, size_bytes
from engine.model.gguf_header import GgufError, GgufHeader, GgufTensor, Value, parse_header
from engine.model.stored import Checkpoint, StoredTensor

WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Typed look-ups in the key-value part; a wrong type is a CheckpointError that names the key."""

    values: dict[str, Value]
    architecture: Architecture

    def number(self, key: str, default: float | None = None) -> float:
        """Return `<architecture>.<key>`."""
        key = f"{self.architecture}.{key}"
        value = self.values.get(key, default)
        if value is None:
            raise CheckpointError(f"the GGUF metadata lack {key}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CheckpointError(f"the GGUF metadata's {key} is {str(value)[:60]!r}; a single number was expected")
        return value

    def token(self, key: str) -> int | None:
        """Return `tokenizer.ggml.<key>`."""
        value = self.values.get(f"tokenizer.ggml.{key}")
        return value if isinstance(value, int) else None


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header of a file; raises CheckpointError or OSError."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            raise CheckpointError("the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return parse_header(data)
            except GgufError as error:
                raise CheckpointError(str(error)) from None


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file; raises CheckpointError or OSError."""
    header = read_gguf_header(path)
    table = {tensor.name: tensor for tensor in header.tensors}
    config = _config(header, table, _rope_factors(path, header, table))
    index = tuple(
        StoredTensor(
            name=_canonical(tensor.name),
            shape=tensor.shape,
            encoding=encoding(tensor),
            file=path,
            offset=header.data_start + tensor.offset,
            size_bytes=size_bytes(tensor),
            block=block_length(tensor),
        )
        for tensor in header.tensors
        if tensor.name != ROPE_FACTORS
    )
    return Checkpoint(path, config, index, decoder(config), grouped_decoder(config))


def _config(header: GgufHeader, table: dict[str, GgufTensor], factors: tuple[float, ...] | None) -> ModelConfig:
    architecture = architecture_named(str(header.metadata.get("general.architecture")))
    metadata = Metadata(header.metadata, architecture)
    if "token_embd.weight" not in table:
        raise CheckpointError("tensor token_embd.weight is missing; the GGUF holds no whole model")
    heads, hidden = int(metadata.number("attention.head_count")), int(metadata.number("embedding_length"))
    head_dim = int(metadata.number("attention.key_length", hidden // max(1, heads)))
    if metadata.number("rope.dimension_count", head_dim) != head_dim:
        raise CheckpointError("rotary positions over a part of the head are not supported")
    ends = [token for key in END_KEYS if (token := metadata.token(key)) is not None]
    return check_config(
        ModelConfig(
            architecture=architecture,
            layers=int(metadata.number("block_count")),
            hidden=hidden,
            heads=heads,
            kv_heads=int(metadata.number("attention.head_count_kv", heads)),
            head_dim=head_dim,
            ffn=int(metadata.number("feed_forward_length")),
            vocab=table["token_embd.weight"].shape[0],
            context_length=int(metadata.number("context_length")),
            # Stored as float32: 9.999999747e-06 was written as 1e-05.
            rms_eps=float(f"{metadata.number('attention.layer_norm_rms_epsilon'):.6g}"),
            rope_theta=metadata.number("rope.freq_base", 10000.0),
            rope_divisors=factors or _linear_scaling(metadata, head_dim),
            tied_embeddings="output.weight" not in table,
            qkv_bias=architecture is Architecture.QWEN2,
            qk_norm=architecture is Architecture.QWEN3,
            bos_id=metadata.token("bos_token_id"),
            eos_ids=tuple(dict.fromkeys(ends)),
        )
    )


def _linear_scaling(metadata: Metadata, head_dim: int) -> tuple[float, ...] | None:
    kind = metadata.values.get(f"{metadata.architecture}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise CheckpointError(f"rope scaling {kind!r} is not supported; supported are linear and llama3")
    return (float(metadata.number("rope.scaling.factor")),) * (head_dim // 2)


def _rope_factors(path: Path, header: GgufHeader, table: dict[str, GgufTensor]) -> tuple[float, ...] | None:
    """Llama 3.1 scaling: GGUF ships the divisors as a small float32 tensor."""
    if (tensor := table.get(ROPE_FACTORS)) is None:
        return None
    with path.open("rb") as file:
        file.seek(header.data_start + tensor.offset)
        raw = file.read(4 * tensor.shape[0])
    if tensor.type_id != 0 or len(raw) != 4 * tensor.shape[0]:
        raise CheckpointError(f"tensor {ROPE_FACTORS} is truncated or not float32; fetch the file again")
    return struct.unpack(f"<{tensor.shape[0]}f", raw)


def _canonical(name: str) -> str:
    if name in WHOLE:
        return WHOLE[name]
    block, _, rest = name.partition(".")
    layer, _, rest = rest.partition(".")
    part, _, kind = rest.rpartition(".")
    if block == "blk" and part in IN_LAYER:
        return f"model.layers.{layer}.{IN_LAYER[part]}.{kind}"
    return name
