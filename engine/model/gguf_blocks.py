"""GGUF's number types: sizes of stored tensors, and stored blocks to float tensors."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from engine.errors import CheckpointError
from engine.model.config import Architecture, ModelConfig
from engine.model.gguf_header import GgufTensor
from engine.model.stored import Decode, StoredTensor

if TYPE_CHECKING:
    import torch

NOT_WEIGHTS = ("I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K")
"""Types that `gguf` cannot turn into float32: indices, and activations of llama.cpp."""
PERMUTED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")


def encoding(tensor: GgufTensor) -> str:
    """Return the type's name; raises CheckpointError when it cannot be read."""
    try:
        name = str(GGMLQuantizationType(tensor.type_id).name)
    except ValueError:
        name = f"number {tensor.type_id}"
    if name in NOT_WEIGHTS or name.startswith("number"):
        raise CheckpointError(f"tensor {tensor.name} has the type {name}, which is not supported for weights")
    return name


def size_bytes(tensor: GgufTensor) -> int:
    """Return the stored size; raises CheckpointError when rows are not whole blocks."""
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.type_id)]
    if not tensor.shape or tensor.shape[-1] % block:
        raise CheckpointError(f"tensor {tensor.name}: shape {list(tensor.shape)} has no whole blocks of {block}")
    return int(prod(tensor.shape) // block * block_bytes)


def block_length(tensor: GgufTensor) -> int:
    """Return how many numbers of a row are stored as one block."""
    return int(GGML_QUANT_SIZES[GGMLQuantizationType(tensor.type_id)][0])


def decoder(config: ModelConfig) -> Decode:
    """Return the function that turns stored bytes into float32 tensors of this model."""
    permuted = PERMUTED if config.architecture is Architecture.LLAMA else ()

    def decode(stored: StoredTensor, raw: bytearray) -> torch.Tensor:
        tensor = dequantised(stored, raw)
        return unpermuted(tensor, config.head_dim) if stored.name.endswith(permuted) else tensor

    return decode


def dequantised(stored: StoredTensor, raw: bytearray) -> torch.Tensor:
    """Return float32 of the stored shape."""
    import numpy as np
    import torch

    kind = GGMLQuantizationType[stored.encoding]
    rows = np.frombuffer(raw, np.uint8).reshape(prod(stored.shape[:-1]), -1)
    return torch.from_numpy(dequantize(rows, kind)).reshape(stored.shape)


def unpermuted(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Undo llama.cpp's order of query and key rows, `[rows, columns]`, of any number of whole heads.

    llama.cpp rotates neighbouring pairs, Hugging Face rotates halves; so its converter interleaves the
    halves of each head (convert_hf_to_gguf.py, LlamaModel.permute), Llama only.
    """
    rows, columns = weight.shape
    return weight.view(-1, head_dim // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
