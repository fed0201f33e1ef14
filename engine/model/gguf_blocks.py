"""GGUF's number types: sizes of stored tensors, and stored blocks to float tensors."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from engine.errors import CheckpointError
from engine.model.config import Architecture, ModelConfig
from engine.model.gguf_header import GgufTensor
from engine.model.stored import Decode, DecodeGroups, StoredTensor

if TYPE_CHECKING:
    import torch

    from engine.model.grouped import GroupedWeight

NOT_WEIGHTS = ("I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K")
"""Types that `gguf` cannot turn into float32: indices, and activations of llama.cpp."""


class _Groups(NamedTuple):
    """A block of 32 levels: its bits, the bytes before them, and what level 0 stands for, in scales."""

    bits: int
    head_bytes: int
    zero: int


GROUPED = {"Q4_0": _Groups(4, 2, -8), "Q4_1": _Groups(4, 4, 0), "Q8_0": _Groups(8, 2, -128)}
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


def grouped_decoder(config: ModelConfig) -> DecodeGroups:
    """Return the function that turns stored blocks of 4 and 8 bits into groups, and is None for other types."""
    permuted = PERMUTED if config.architecture is Architecture.LLAMA else ()

    def decode(stored: StoredTensor, raw: bytearray) -> GroupedWeight | None:
        if stored.encoding not in GROUPED:
            return None
        weight = grouped(stored, raw)
        if not stored.name.endswith(permuted):
            return weight
        import torch

        order = unpermuted(torch.arange(stored.shape[0])[:, None], config.head_dim)[:, 0]
        return weight.reordered(order)

    return decode


def grouped(stored: StoredTensor, raw: bytearray) -> GroupedWeight:
    """Return the blocks as they are, without rounding.

    A block of 32 numbers is a float16 scale, in Q4_1 a float16 minimum, then the levels: two in a byte, the first 16 in
    the low halves, or signed bytes (ggml's quants, through the `gguf` package). Levels are counted from 0 here.
    """
    import torch

    from engine.model.grouped import GroupedWeight

    kind = GROUPED[stored.encoding]
    rows, columns = stored.shape
    blocks = torch.frombuffer(raw, dtype=torch.uint8).view(rows, columns // 32, -1)
    heads = blocks[:, :, : kind.head_bytes].contiguous().view(torch.float16)
    scales, packed = heads[:, :, 0], blocks[:, :, kind.head_bytes :]
    offsets = heads[:, :, 1] if kind.head_bytes == 4 else scales * kind.zero
    levels = torch.cat((packed & 15, packed >> 4), dim=-1) if kind.bits == 4 else packed + 128
    return GroupedWeight(levels.reshape(rows, columns), scales, offsets, kind.bits)


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
