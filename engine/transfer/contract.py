"""What two engines must have in common before the first room (invariant 9)."""

from __future__ import annotations

from engine import PROTOCOL_VERSION
from engine.kvcache.layout import KVLayout, PageMemory
from engine.transfer.frames import Geometry


def geometry_of(pool: PageMemory) -> Geometry:
    """Describe a pool to a peer."""
    layout = pool.layout
    return Geometry(
        address=pool.address,
        layers=layout.layers,
        kv_heads=layout.kv_heads,
        pages=layout.pages,
        page_size=layout.page_size,
        head_dim=layout.head_dim,
        dtype=layout.dtype,
        item_bytes=layout.item_bytes,
    )


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


def full_contract(contract: dict[str, str], geometry: Geometry) -> dict[str, str]:
    """Return the contract with the fields that this package itself depends on added.

    The number of pages and the address may differ between the sides and are left out.
    """
    return contract | {
        "protocol": str(PROTOCOL_VERSION),
        "kv.layout": "layer,kv,head,page,slot,dim",
        "kv.layers": str(geometry.layers),
        "kv.heads": str(geometry.kv_heads),
        "kv.page_size": str(geometry.page_size),
        "kv.head_dim": str(geometry.head_dim),
        "kv.dtype": f"{geometry.dtype}/{geometry.item_bytes}",
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
