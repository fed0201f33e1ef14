"""What rank 0's control thread orders from a prefill rank's source worker, and what that reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from engine.transfer.interface import FirstToken
from engine.transfer.protocol.frames import MAX_FRAME_BYTES

READY_BYTES = MAX_FRAME_BYTES // 4
"""What the pages of one READY may take on the wire; 7,000 of them with 8 heads."""
PAGE_NUMBER_BYTES = 5
CHECKSUM_BYTES = 4
"""Of a page and head."""


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """Computed pages of a prompt, as the loop reported them: sum them, `ChunkSummed` follows."""

    rid: str
    first_page: int
    pages: tuple[int, ...]
    first: FirstToken | None


def chunks_of(rid: str, first_page: int, pages: Sequence[int], first: FirstToken | None, heads: int) -> Iterator[Chunk]:
    """Yield what the loop reported in chunks whose READY fits into a frame; the first token comes with the last.

    `heads`: of all ranks together, each sums those that it holds. A prompt found in the prefix cache comes at once.
    """
    most = max(1, READY_BYTES // (PAGE_NUMBER_BYTES + CHECKSUM_BYTES * heads))
    for start in range(0, max(len(pages), 1), most):
        is_last = start + most >= len(pages)
        yield Chunk(rid, first_page + start, tuple(pages[start : start + most]), first if is_last else None)


class Stir(msgspec.Struct, frozen=True, tag="stir"):
    """Have the data-plane process poll tightly for a while: a reader is about to read or to connect."""

    rooms_reading: int
    """How many rooms a reader may be reading from now on."""


class FillCanary(msgspec.Struct, frozen=True, tag="fill_canary"):
    """Write a nonce all over a page that no ledger hands out; `CanaryFilled` follows."""

    page: int
    nonce: bytes


SourceOrder = Chunk | Stir | FillCanary


class ChunkSummed(msgspec.Struct, frozen=True, tag="chunk_summed"):
    """A chunk with this rank's checksums; `error` when they could not be computed."""

    chunk: Chunk
    checksums: bytes
    error: str = ""

    @property
    def rid(self) -> str:
        return self.chunk.rid


class SourceChanged(msgspec.Struct, frozen=True, tag="source_changed"):
    """Where readers find this rank's pages from now on; `metadata` is empty while there is no data-plane process."""

    number: int
    metadata: bytes = b""
    address: int = 0


class CanaryFilled(msgspec.Struct, frozen=True, tag="canary_filled"):
    """This rank's canary page holds the nonce."""

    nonce: bytes


SourceReport = ChunkSummed | SourceChanged | CanaryFilled
