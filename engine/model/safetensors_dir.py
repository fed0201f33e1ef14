"""Hugging Face directories: config.json and safetensors files, one or sharded."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError
from engine.model.hf_config import config_of
from engine.model.stored import Checkpoint, StoredTensor

if TYPE_CHECKING:
    import torch

INDEX_FILE = "model.safetensors.index.json"
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
TORCH_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
MAX_HEADER_BYTES = 100_000_000
"""The format's own bound."""
DERIVED = "rotary_emb.inv_freq"
"""Tensors that old checkpoints carry and that follow from the configuration."""


def open_directory(path: Path) -> Checkpoint:
    """Open a Hugging Face directory; raises CheckpointError or OSError."""
    config = config_of(read_json(path / "config.json"), _optional_json(path / "generation_config.json"))
    index = tuple(stored for file in _files(path) for stored in _tensors(file))
    if config.tied_embeddings:
        # Some exporters write the tied matrix twice.
        index = tuple(stored for stored in index if stored.name != "lm_head.weight")
    return Checkpoint(path, config, index, decode)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises CheckpointError when it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path.name} is no valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name} holds no JSON object")
    return content


def decode(stored: StoredTensor, raw: bytearray) -> torch.Tensor:
    """Return the tensor in its stored number type, over the same memory."""
    import torch

    return torch.frombuffer(raw, dtype=getattr(torch, TORCH_NAMES[stored.encoding])).reshape(stored.shape)


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _files(path: Path) -> list[Path]:
    """Return the weight files: those the index names, else every *.safetensors."""
    if (path / INDEX_FILE).exists():
        names = read_json(path / INDEX_FILE).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise CheckpointError(f"{INDEX_FILE} has no weight_map of file names")
        return [path / name for name in sorted(set(names.values()))]
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise CheckpointError("the directory has no *.safetensors file (pickled *.bin weights are not read)")
    return files


def _tensors(file: Path) -> list[StoredTensor]:
    """Read one file's header: 8 bytes of length, then JSON of name -> dtype, shape, offsets."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if not 2 <= size <= min(MAX_HEADER_BYTES, file.stat().st_size - 8):
            raise CheckpointError(f"{file.name} is truncated or no safetensors file; fetch it again")
        raw = stream.read(size)
    try:
        header = json.loads(raw)
        return [
            _tensor(name, entry, file, 8 + size)
            for name, entry in header.items()
            if name != "__metadata__" and not name.endswith(DERIVED)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the header of {file.name} is corrupt ({error}); fetch it again") from None


def _tensor(name: str, entry: dict[str, Any], file: Path, data_start: int) -> StoredTensor:
    encoding, shape = entry["dtype"], tuple(int(size) for size in entry["shape"])
    begin, end = entry["data_offsets"]
    if encoding not in ITEM_BYTES:
        supported = ", ".join(ITEM_BYTES)
        raise CheckpointError(f"tensor {name} has the type {encoding}; supported are {supported}")
    if end - begin != prod(shape) * ITEM_BYTES[encoding] or begin < 0:
        raise CheckpointError(f"tensor {name} in {file.name}: {end - begin} bytes do not hold {list(shape)}")
    return StoredTensor(name, shape, encoding, file, data_start + begin, end - begin)
