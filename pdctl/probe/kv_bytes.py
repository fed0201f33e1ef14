"""Did the KV of the prompt really travel, and all of it?"""

from __future__ import annotations

import math

import msgspec

from pdctl.collect.http import InstanceClient
from pdctl.probe.rooms import RoomRecord

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


class KvShape(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of the KV of one token, from the contract that an engine publishes; numbers come as text."""

    layers: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: str

    @property
    def page_bytes(self) -> int | None:
        """Return the bytes of a page, keys and values of all layers; None for a dtype that is not known."""
        item_bytes = ITEM_BYTES.get(self.dtype)
        if item_bytes is None:
            return None
        return self.page_size * self.layers * 2 * self.kv_heads * self.head_dim * item_bytes


class _Info(msgspec.Struct, frozen=True):
    contract: dict[str, str]


def kv_shape(client: InstanceClient) -> KvShape | None:
    """Return the shape that an instance publishes in /server_info, or None."""
    answer = client.get("/server_info")
    if not answer.ok:
        return None
    try:
        contract = msgspec.json.decode(answer.body, type=_Info).contract
        return msgspec.convert(contract, KvShape, strict=False)
    except msgspec.DecodeError:
        return None


def kv_problem(prefill: RoomRecord, decode: RoomRecord, shape: KvShape | None) -> str | None:
    """Return what is wrong with the bytes that the two legs report, or None.

    Decode must have read every page of the prompt that it had not cached: as many bytes as the model's shape
    says, or where that is not known, as prefill offered.
    """
    if decode.kv_bytes == 0 and decode.cached_tokens < decode.prompt_tokens:
        return "no KV travelled: decode read 0 bytes, so it did not serve this prompt from prefill's pages"
    page_bytes = shape.page_bytes if shape else None
    if shape is not None and page_bytes is not None:
        pages = math.ceil(decode.prompt_tokens / shape.page_size) - decode.cached_tokens // shape.page_size
        expected = pages * page_bytes
        reason = f"{pages} pages of {page_bytes} B are {expected} B"
    elif decode.cached_tokens == 0:
        expected = prefill.kv_bytes
        reason = f"prefill offered {expected} B"
    else:
        return None
    if decode.kv_bytes == expected:
        return None
    return f"decode read {decode.kv_bytes} B of KV for {decode.prompt_tokens} prompt tokens, but {reason}"
