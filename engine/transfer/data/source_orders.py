"""What rank 0's control thread orders from a prefill rank's source worker, and what that reports."""

from __future__ import annotations

import msgspec

from engine.transfer.interface import FirstToken


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """Computed pages of a prompt, as the loop reported them: sum them, `ChunkSummed` follows."""

    rid: str
    first_page: int
    pages: tuple[int, ...]
    first: FirstToken | None


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
