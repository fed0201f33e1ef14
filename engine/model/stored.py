"""A model on disk, whatever its format: configuration, fingerprint, tensors one at a time.

Importing this module does not import torch; only `Checkpoint.tensors` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import CheckpointError
from engine.model.config import ModelConfig

if TYPE_CHECKING:
    import torch

    from engine.model.grouped import GroupedWeight, Weight

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
    block: int = 1
    """Neighbouring numbers of a row that are stored as one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tensor; None: all of that axis."""

    rows: range | None = None
    columns: range | None = None


WHOLE = Piece()
Decode = Callable[[StoredTensor, bytearray], "torch.Tensor"]
DecodeGroups = Callable[[StoredTensor, bytearray], "GroupedWeight | None"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint. Nothing is held open or in memory: each access reads the files again."""

    path: Path
    config: ModelConfig
    index: tuple[StoredTensor, ...]
    decode: Decode
    """Turns the stored bytes into a float tensor of the stored shape."""
    decode_groups: DecodeGroups | None = None
    """Turns the stored bytes into groups of 4 or 8 bits; None for a tensor, or a format, that has none."""

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

    def tensors(self, piece_of: Callable[[str], Piece] = lambda _: WHOLE) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (canonical name, float tensor) in the order of the files; holds one tensor at a time.

        Of each tensor only the piece that `piece_of` says. Other rows are not read; other columns are, but not
        decoded. Pieces of GGUF's query and key rows must be whole heads.
        """
        for stored in self.index:
            piece = piece_of(stored.name)
            part = stored if piece.rows is None else _rows(stored, piece.rows)
            raw = _read(part, 0, part.size_bytes)
            if piece.columns is None:
                yield stored.name, self.decode(part, raw)
            else:
                yield stored.name, self._columns(part, raw, piece.columns)

    def grouped_tensors(self) -> Iterator[tuple[str, Weight]]:
        """Yield whole tensors like `tensors`; those that are stored in groups of 4 or 8 bits, as these groups."""
        for stored in self.index:
            raw = _read(stored, 0, stored.size_bytes)
            groups = None if self.decode_groups is None else self.decode_groups(stored, raw)
            yield stored.name, self.decode(stored, raw) if groups is None else groups

    def _columns(self, stored: StoredTensor, raw: bytearray, wanted: range) -> torch.Tensor:
        """Decode the blocks that hold the wanted columns."""
        rows, columns = stored.shape
        row_bytes = stored.size_bytes // rows
        first, last = wanted.start // stored.block, -(-wanted.stop // stored.block)
        start, stop = (row_bytes * block * stored.block // columns for block in (first, last))
        view = memoryview(raw)
        blocks = bytearray().join(view[row * row_bytes + start : row * row_bytes + stop] for row in range(rows))
        shape = (rows, (last - first) * stored.block)
        tensor = self.decode(replace(stored, shape=shape, size_bytes=len(blocks)), blocks)
        skip = wanted.start - first * stored.block
        return tensor[:, skip : skip + len(wanted)].contiguous()


def _rows(stored: StoredTensor, rows: range) -> StoredTensor:
    """Return the tensor that some rows of another one are, in the same place."""
    row_bytes = stored.size_bytes // stored.shape[0]
    return replace(
        stored,
        shape=(len(rows), *stored.shape[1:]),
        offset=stored.offset + rows.start * row_bytes,
        size_bytes=len(rows) * row_bytes,
    )


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
