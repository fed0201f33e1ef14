"""The paged KV memory of one rank.

Layout `[layer][K|V][kv head][page][slot][dim]`: the pages of one head lie side by side, so a run of neighbouring
pages is one contiguous piece per (layer, K|V, head), and a head slice is whole runs.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class KVLayout:
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

    def offset(self, layer: int, kv: int, head: int, page: int) -> int:
        """Return the byte offset of a piece from the start of the pool."""
        return (((layer * 2 + kv) * self.kv_heads + head) * self.pages + page) * self.piece_bytes


class KVPool:
    """One contiguous tensor `[layers, 2, kv_heads, pages, page_size, head_dim]` and byte views of it."""

    def __init__(self, layout: KVLayout, device: str = "cpu") -> None:
        self.layout = layout
        shape = (layout.layers, 2, layout.kv_heads, layout.pages, layout.page_size, layout.head_dim)
        if device == "cpu":
            # The kernel's zeros: memory becomes resident when it is first written. (numpy's would ask for huge
            # pages, and since heads lie far apart, one prompt would make the whole pool resident.)
            memory = mmap.mmap(-1, layout.page_bytes * layout.pages)
            self.tensor = torch.frombuffer(memory, dtype=getattr(torch, layout.dtype)).reshape(shape)
        else:
            self.tensor = torch.zeros(shape, dtype=getattr(torch, layout.dtype), device=device)

    @property
    def address(self) -> int:
        """Address of the first byte, for registration."""
        return self.tensor.data_ptr()

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.tensor.numel() * self.tensor.element_size()

    def bytes_view(self) -> np.ndarray:
        """Return uint8 `[layers, 2, kv_heads, pages, piece_bytes]` over the same memory (CPU only)."""
        flat = self.tensor.view(torch.uint8).numpy()
        shape = self.layout
        return flat.reshape(shape.layers, 2, shape.kv_heads, shape.pages, shape.piece_bytes)
