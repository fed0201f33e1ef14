"""What two engines must have in common before the first room (invariant 9).

Not `--quantization`, nor who computes the step: both sides hold the weights of the same file, and the KV they exchange
is bfloat16 either way. A prompt by one and an answer by the other is as near to float32 as the less exact alone: of 640
forced choices 98.4 and 99.1 % are float32's, with 4-bit blocks on both sides 98.6 % (`benchmarks/agreement.py`). And it
is a way to serve: exact prompts, fast answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine import PROTOCOL_VERSION
from engine.kvcache.layout import KVLayout
from engine.transfer.protocol.frames import Geometry, RankPool
from engine.transfer.protocol.head_runs import absent_heads


def pools_of(layout: KVLayout, kv_heads: Sequence[range]) -> list[RankPool]:
    """Describe the pools of all ranks, given the layout of one and the KV heads of each. Addresses are unknown yet."""
    return [
        RankPool(
            first_head=heads.start,
            geometry=Geometry(
                address=0,
                layers=layout.layers,
                kv_heads=len(heads),
                pages=layout.pages,
                page_size=layout.page_size,
                head_dim=layout.head_dim,
                dtype=layout.dtype,
                item_bytes=layout.item_bytes,
            ),
        )
        for heads in kv_heads
    ]


def layout_of(geometry: Geometry) -> KVLayout:
    """Return the layout a peer described."""
    return KVLayout(
        layers=geometry.layers,
        kv_heads=geometry.kv_heads,
        pages=geometry.pages,
        page_size=geometry.page_size,
        head_dim=geometry.head_dim,
        dtype=geometry.dtype,
        item_bytes=geometry.item_bytes,
    )


def contract_of(model: str, checksums: bool, ranks: Sequence[RankPool]) -> dict[str, str]:
    """Return what both sides must say alike; `model` is the checkpoint's fingerprint, `ranks` are the own pools.

    The number of ranks, and of pages, may differ between the sides and are left out; see `ranks_mismatch`. Checksums
    are in it, since a decode that verifies can use no chunk of a prefill that sums none.
    """
    geometry = ranks[0].geometry
    return {
        "protocol": str(PROTOCOL_VERSION),
        "model": model,
        "dtype": geometry.dtype,
        "page_size": str(geometry.page_size),
        "layout": "layer,kv,head,page,slot,dim",
        "layers": str(geometry.layers),
        "kv_heads": str(len({head for rank in ranks for head in rank.kv_heads})),
        "head_dim": str(geometry.head_dim),
        "checksums": "on" if checksums else "off",
    }


def mismatch(ours: dict[str, str], theirs: dict[str, str]) -> str | None:
    """Name every field that differs with both values, or None when the two sides fit."""
    fields = sorted(ours.keys() | theirs.keys())
    differing = [
        f"{field}: here {ours.get(field, 'absent')!r}, peer {theirs.get(field, 'absent')!r}"
        for field in fields
        if ours.get(field) != theirs.get(field)
    ]
    return "; ".join(differing) or None


def ranks_mismatch(prefill: Sequence[RankPool], decode: Sequence[RankPool]) -> str | None:
    """Say why decode's ranks cannot read from prefill's, field and values, or None. Both sides ask the same."""
    for side, ranks in (("prefill", prefill), ("decode", decode)):
        if not ranks:
            return f"kv.ranks: {side} names no rank"
        differing = {_cut(rank) for rank in ranks}
        if len(differing) > 1:
            return f"kv.ranks: the ranks of {side} are cut differently: {sorted(differing)}"
    sources, readers = ([rank.kv_heads for rank in ranks] for ranks in (prefill, decode))
    if absent := absent_heads(sources, readers):
        return f"kv.ranks: decode needs the KV heads {absent}, prefill's ranks hold {shown_heads(sources)}"
    return None


def shown_heads(ranks: Sequence[range]) -> str:
    """Return the heads by rank, such as `0-1 | 2`."""
    return " | ".join(f"{heads.start}-{heads.stop - 1}" if len(heads) > 1 else f"{heads.start}" for heads in ranks)


def _cut(rank: RankPool) -> tuple[int, ...]:
    geometry = rank.geometry
    return (geometry.layers, geometry.pages, geometry.page_size, geometry.head_dim, geometry.item_bytes)
