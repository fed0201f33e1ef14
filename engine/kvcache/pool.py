"""The paged KV memory of one rank; how it is cut stands in `engine.kvcache.layout`."""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np
import torch

from engine.kernels.device import CPU
from engine.kvcache.layout import KVLayout

__all__ = ["KVLayout", "KVPool"]


class KVPool:
    """One contiguous tensor `[layers, 2, kv_heads, pages, page_size, head_dim]` and byte views of it.

    On a CPU the memory is a file without a name, so that the data-plane process can map it too.
    """

    def __init__(self, layout: KVLayout, device: torch.device = CPU) -> None:
        self.layout = layout
        self.descriptor: int | None = None
        shape = (layout.layers, 2, layout.kv_heads, layout.pages, layout.page_size, layout.head_dim)
        dtype = getattr(torch, layout.dtype)
        if device.type == "cpu":
            # The kernel's zeros: memory becomes resident when it is first written. (numpy's would ask for huge
            # pages, and since heads lie far apart, one prompt would make the whole pool resident.)
            self.descriptor = os.memfd_create("kv-pool", os.MFD_CLOEXEC)
            weakref.finalize(self, os.close, self.descriptor)
            os.ftruncate(self.descriptor, layout.size_bytes)
            memory = mmap.mmap(self.descriptor, layout.size_bytes)
            self.tensor = torch.frombuffer(memory, dtype=dtype).reshape(shape)
        else:
            self.tensor = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def address(self) -> int:
        """Address of the first byte, for registration."""
        return self.tensor.data_ptr()

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.tensor.numel() * self.tensor.element_size()

    @property
    def device_index(self) -> int | None:
        """Number of the GPU that holds it; None for host memory."""
        return None if self.tensor.device.type == "cpu" else self.tensor.device.index or 0

    def bytes_view(self) -> np.ndarray:
        """Return uint8 `[layers, 2, kv_heads, pages, piece_bytes]` over the same memory (CPU only)."""
        return self.layout.pieces(self.tensor.view(torch.uint8).numpy().reshape(-1))
