"""How KV memory is cut, and the same memory seen by another process. No torch: the data plane has no use for it.

Layout `[layer][K|V][kv head][page][slot][dim]`: the pages of one head lie side by side, so a run of neighbouring
pages is one contiguous piece per (layer, K|V, head), and a head slice is whole runs.
"""

from __future__ import annotations

import mmap
from typing import Protocol

import msgspec
import numpy as np


class KVLayout(msgspec.Struct, frozen=True):
    """Shape of a pool; equal on both sides of a transfer but for `pages` (and, with tensor parallel, `kv_heads`)."""

    layers: int
    kv_heads: int
    pages: int
    page_size: int
    head_dim: int
    dtype: str
    item_bytes: int

    @property
    def piece_bytes(self) -> int:
        """Bytes of one page of one head in one layer, K or V."""
        return self.page_size * self.head_dim * self.item_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers, K and V, and this rank's heads."""
        return self.layers * 2 * self.kv_heads * self.piece_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.page_bytes * self.pages

    def offset(self, layer: int, kv: int, head: int, page: int) -> int:
        """Return the byte offset of a piece from the start of the pool."""
        return (((layer * 2 + kv) * self.kv_heads + head) * self.pages + page) * self.piece_bytes

    def pieces(self, flat: np.ndarray) -> np.ndarray:
        """Return `flat` (uint8, the whole pool) as `[layers, 2, kv_heads, pages, piece_bytes]`, not copied."""
        return flat.reshape(self.layers, 2, self.kv_heads, self.pages, self.piece_bytes)


class PageMemory(Protocol):
    """A pool as NIXL and the checksums need it, in whichever process."""

    layout: KVLayout

    @property
    def address(self) -> int:
        """Address of the first byte in this process."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole pool."""

    @property
    def device_index(self) -> int | None:
        """Number of the GPU that holds it; None for host memory."""

    def bytes_view(self) -> np.ndarray:
        """Return uint8 `[layers, 2, kv_heads, pages, piece_bytes]` over the memory (host only)."""


class SharedPages:
    """A pool that another process of this instance owns, mapped here through its file descriptor."""

    device_index: int | None = None

    def __init__(self, layout: KVLayout, descriptor: int) -> None:
        self.layout = layout
        self._bytes = np.frombuffer(mmap.mmap(descriptor, layout.size_bytes), dtype=np.uint8)

    @property
    def address(self) -> int:
        """Address of the first byte in this process."""
        return int(self._bytes.ctypes.data)

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole pool."""
        return len(self._bytes)

    def bytes_view(self) -> np.ndarray:
        """Return uint8 `[layers, 2, kv_heads, pages, piece_bytes]` over the memory."""
        return self.layout.pieces(self._bytes)
