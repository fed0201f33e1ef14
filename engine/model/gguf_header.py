"""The header of a GGUF file: bytes to record.

The `gguf` package's reader makes a numpy view of each of the 98,000 strings of SmolLM2's tokenizer: 2.7 s.
This one takes 50 ms. Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
MAX_DIMENSIONS = 4

Scalar = str | int | float | bool
Value = Scalar | list[Scalar]
Buffer = bytes | bytearray | mmap


class GgufError(ValueError):
    """The bytes are no GGUF header; says what is wrong and at which byte."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One entry of the tensor table."""

    name: str
    shape: tuple[int, ...]
    """Outermost dimension first, as in numpy (GGUF writes the innermost first)."""
    type_id: int
    """A GGMLQuantizationType."""
    offset: int
    """From `GgufHeader.data_start`."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata, tensor table, and where the tensor data begins (bytes from the start of the file)."""

    metadata: dict[str, Value]
    tensors: tuple[GgufTensor, ...]
    data_start: int


def parse_header(data: Buffer) -> GgufHeader:
    """Parse the header at the start of `data`; raises GgufError."""
    cursor = _Cursor(data)
    if cursor.take(4) != MAGIC:
        raise GgufError(f"not a GGUF file: it begins with {bytes(data[:4])!r}")
    version = cursor.number("<I")
    if version not in VERSIONS:
        raise GgufError(f"GGUF version {version} is not supported; supported are 2 and 3, little-endian")
    tensor_count = cursor.count("<Q", least_bytes=24)
    key_count = cursor.count("<Q", least_bytes=13)
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = cursor.text()
        metadata[key] = cursor.value(int(cursor.number("<I")))
    tensors = tuple(_tensor(cursor) for _ in range(tensor_count))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise GgufError(f"general.alignment is {alignment!r}; it must be a positive integer")
    return GgufHeader(metadata, tensors, -(-cursor.at // alignment) * alignment)


def _tensor(cursor: _Cursor) -> GgufTensor:
    name = cursor.text()
    dimensions = int(cursor.number("<I"))
    if dimensions > MAX_DIMENSIONS:
        raise GgufError(f"tensor {name!r} has {dimensions} dimensions; at most {MAX_DIMENSIONS} exist")
    shape = tuple(int(cursor.number("<Q")) for _ in range(dimensions))
    return GgufTensor(name, shape[::-1], int(cursor.number("<I")), int(cursor.number("<Q")))


class _Cursor:
    """Reads on from a position, never past the end; a count that the rest cannot hold is an error at once."""

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise GgufError(f"the header is truncated: {size} bytes wanted at {self.at}, the file has {self.end}")
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def number(self, code: str) -> int | float:
        result: int | float = struct.unpack(code, self.take(struct.calcsize(code)))[0]
        return result

    def count(self, code: str, least_bytes: int) -> int:
        count = int(self.number(code))
        if count * least_bytes > self.end - self.at:
            raise GgufError(f"a count of {count} at byte {self.at} does not fit into a file of {self.end} bytes")
        return count

    def text(self) -> str:
        size = int(self.number("<Q"))
        return _decoded(self.take(size), self.at)

    def value(self, kind: int) -> Value:
        if kind == ARRAY:
            return self._array()
        if kind == STRING:
            return self.text()
        return self.number(_scalar_code(kind))

    def _array(self) -> list[Scalar]:
        kind = int(self.number("<I"))
        if kind == STRING:
            return self._texts(self.count("<Q", least_bytes=8))
        code = _scalar_code(kind)
        size = struct.calcsize(code)
        count = self.count("<Q", least_bytes=size)
        return list(struct.unpack(f"<{count}{code[1]}", self.take(count * size)))

    def _texts(self, count: int) -> list[Scalar]:
        """A loop of its own, with everything local: 98,000 turns for SmolLM2."""
        data, at, end = self.data, self.at, self.end
        read_size: Callable[[Buffer, int], tuple[int]] = struct.Struct("<Q").unpack_from
        texts: list[Scalar] = []
        for _ in range(count):
            if at + 8 > end or at + 8 + (size := read_size(data, at)[0]) > end:
                raise GgufError(f"the header is truncated: a string at byte {at} ends beyond byte {end}")
            at += 8 + size
            texts.append(_decoded(data[at - size : at], at))
        self.at = at
        return texts


def _scalar_code(kind: int) -> str:
    if kind not in SCALARS:
        raise GgufError(f"metadata type {kind} does not exist (nested arrays are not supported)")
    return SCALARS[kind]


def _decoded(raw: bytes | bytearray, end: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise GgufError(f"the string that ends at byte {end} is not UTF-8") from None
