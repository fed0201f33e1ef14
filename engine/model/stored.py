"""A model on disk, whatever its format: configuration, fingerprint, tensors one at a time.

Importing this module does not import torch; only `Checkpoint.tensors` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import CheckpointError
from engine.model.config import ModelConfig

if TYPE_CHECKING:
    import torch

SAMPLE_BYTES = 64 * 1024
SAMPLE_PIECES = 16


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies and how it is written."""

    name: str
    """Canonical (Hugging Face) name."""
    shape: tuple[int, ...]
    encoding: str
    """The format's own name of the number type, e.g. BF16, Q4_1."""
    file: Path
    offset: int
    size_bytes: int


Decode = Callable[[StoredTensor, bytearray], "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint. Nothing is held open or in memory: each access reads the files again."""

    path: Path
    config: ModelConfig
    index: tuple[StoredTensor, ...]
    decode: Decode
    """Turns the stored bytes into a float tensor of the stored shape."""

    def fingerprint(self) -> str:
        """Return a SHA-256 (hex) over configuration, tensor index and 64 KiB sampled of each tensor.

        Two instances with the same fingerprint compute the same model. SmolLM2: 30 ms from the page cache.
        """
        digest = hashlib.sha256(json.dumps(asdict(self.config), sort_keys=True).encode())
        for stored in sorted(self.index, key=lambda stored: stored.name):
            digest.update(json.dumps([stored.name, stored.shape, stored.encoding]).encode())
            for piece in _sampled(stored):
                digest.update(_read(stored, *piece))
        return digest.hexdigest()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (canonical name, float tensor) in the order of the files; holds one tensor at a time."""
        for stored in self.index:
            yield stored.name, self.decode(stored, _read(stored, 0, stored.size_bytes))


def _sampled(stored: StoredTensor) -> list[tuple[int, int]]:
    """Return (offset, size) of evenly spread pieces that add up to 64 KiB, or the whole tensor."""
    if stored.size_bytes <= SAMPLE_BYTES:
        return [(0, stored.size_bytes)]
    piece = SAMPLE_BYTES // SAMPLE_PIECES
    step = (stored.size_bytes - piece) // (SAMPLE_PIECES - 1)
    return [(index * step, piece) for index in range(SAMPLE_PIECES)]


def _read(stored: StoredTensor, offset: int, size_bytes: int) -> bytearray:
    """Read, rather than map: mapped pages would count as this process's memory."""
    buffer = bytearray(size_bytes)
    with stored.file.open("rb", buffering=0) as file:
        file.seek(stored.offset + offset)
        view, done = memoryview(buffer), 0
        while done < size_bytes:
            count = file.readinto(view[done:])
            if not count:
                raise CheckpointError(f"{stored.file} ended within tensor {stored.name}; was it changed?")
            done += count
    return buffer
