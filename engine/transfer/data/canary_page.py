"""The page of a canary: filled with a nonce on prefill, compared on decode."""

from __future__ import annotations

import zlib

import numpy as np

from engine.kvcache.layout import KVLayout, PageMemory


def fill(pages: PageMemory, page: int, nonce: bytes) -> None:
    """Write a nonce all over a page."""
    pages.bytes_view()[:, :, :, page] = _piece(pages.layout, nonce)


def holds(pages: PageMemory, page: int, nonce: bytes) -> bool:
    """Say whether every byte of a page is the nonce's."""
    return bool((pages.bytes_view()[:, :, :, page] == _piece(pages.layout, nonce)).all())


def expected_checksums(layout: KVLayout, nonce: bytes, heads: int) -> bytes:
    """Return what `page_checksums` gives for `heads` heads of one page that holds the nonce."""
    pieces = _piece(layout, nonce).tobytes() * (2 * layout.layers)
    return zlib.crc32(pieces).to_bytes(4, "little") * heads


def _piece(layout: KVLayout, nonce: bytes) -> np.ndarray:
    return np.resize(np.frombuffer(nonce, dtype=np.uint8), layout.piece_bytes)
