"""How many bytes of KV a prompt has to move. Figures are SmolLM2's: 23,040 bytes a token in bfloat16."""

from __future__ import annotations

import pytest

from pdctl.probe.kv_bytes import KvShape, kv_problem
from pdctl.probe.rooms import RoomRecord

SMOLLM2 = KvShape(layers=30, kv_heads=3, head_dim=64, page_size=16, dtype="bfloat16")
PAGE = 16 * 23_040


def legs(tokens: int, read: int, cached: int = 0, offered: int = 0) -> tuple[RoomRecord, RoomRecord]:
    common = {"request_id": "x", "state": "closed", "prompt_tokens": tokens}
    prefill = RoomRecord(role="prefill", kv_bytes=offered, **common)  # type: ignore[arg-type]
    decode = RoomRecord(role="decode", kv_bytes=read, cached_tokens=cached, **common)  # type: ignore[arg-type]
    return prefill, decode


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (16, 1), (17, 2), (512, 32)])
def test_whole_pages_travel(tokens: int, pages: int) -> None:
    """A prompt moves whole pages, the last one included."""
    assert kv_problem(*legs(tokens, pages * PAGE), SMOLLM2) is None
    assert kv_problem(*legs(tokens, pages * PAGE - 1), SMOLLM2) is not None


def test_cached_pages_need_not_travel() -> None:
    """What decode has cached is taken off."""
    assert kv_problem(*legs(512, 31 * PAGE, cached=16), SMOLLM2) is None
    assert kv_problem(*legs(512, 32 * PAGE, cached=16), SMOLLM2) is not None


def test_nothing_read_is_a_problem_unless_all_was_cached() -> None:
    """Zero bytes are right only for a prompt that decode had whole."""
    assert "no KV travelled" in str(kv_problem(*legs(32, 0), SMOLLM2))
    assert kv_problem(*legs(32, 0, cached=32), SMOLLM2) is None


def test_without_a_shape_the_two_sides_must_agree() -> None:
    """Where the shape is not known, decode must have read what prefill offered."""
    assert kv_problem(*legs(32, 100, offered=100), None) is None
    assert "prefill offered 101 B" in str(kv_problem(*legs(32, 100, offered=101), None))
