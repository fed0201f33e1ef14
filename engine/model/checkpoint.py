"""Open a checkpoint of either format and check that it is whole. Does not import torch."""

from __future__ import annotations

from pathlib import Path

from engine.errors import CheckpointError
from engine.model.config import ModelConfig, tensor_shapes
from engine.model.gguf_file import open_gguf
from engine.model.safetensors_dir import open_directory
from engine.model.stored import Checkpoint

__all__ = ["Checkpoint", "ModelConfig", "open_checkpoint"]


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a GGUF file or a Hugging Face directory; reads headers only.

    Raises CheckpointError when it is missing, corrupt, truncated, or of an unsupported architecture.
    """
    path = Path(path)
    try:
        checkpoint = open_directory(path) if path.is_dir() else open_gguf(path)
        _check_index(checkpoint)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"no model at {path}: {error.filename} does not exist; "
            "give a .gguf file or a Hugging Face directory (config.json and *.safetensors)"
        ) from None
    except OSError as error:
        raise CheckpointError(f"cannot read the model at {path}: {error}") from None
    except CheckpointError as error:
        raise CheckpointError(f"cannot load the model at {path}: {error}") from None
    return checkpoint


def _check_index(checkpoint: Checkpoint) -> None:
    """Every needed tensor is there once, with its shape, inside its file; and none that would be left out."""
    needed = tensor_shapes(checkpoint.config)
    found = {stored.name: stored for stored in checkpoint.index}
    for name, shape in needed.items():
        if name not in found:
            raise CheckpointError(f"tensor {name} is missing; the checkpoint is incomplete, fetch it again")
        if found[name].shape != shape:
            raise CheckpointError(
                f"tensor {name} has shape {list(found[name].shape)}, the configuration says {list(shape)}"
            )
    for name in found.keys() - needed.keys():
        raise CheckpointError(f"tensor {name} is not part of a {checkpoint.config.architecture} model")
    sizes = {file: file.stat().st_size for file in {stored.file for stored in checkpoint.index}}
    for stored in checkpoint.index:
        end = stored.offset + stored.size_bytes
        if stored.offset < 0 or end > sizes[stored.file]:
            raise CheckpointError(
                f"{stored.file.name} is truncated: tensor {stored.name} ends at byte {end}, "
                f"the file has {sizes[stored.file]}; fetch it again"
            )
