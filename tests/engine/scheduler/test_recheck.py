"""The recheck of prompt pages finds what it is for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from engine.kvcache.pool import KVLayout, KVPool
from engine.scheduler.recheck import PromptRecheck

LAYOUT = KVLayout(layers=1, kv_heads=1, pages=8, page_size=4, head_dim=2, dtype="float32", item_bytes=4)


@dataclass
class FakeSequence:
    """As much of a sequence as the recheck looks at: a prompt of two whole pages and one begun."""

    rid: str = "a"
    prompt_length: int = 10
    pages: list[int] = field(default_factory=lambda: [5, 1, 2])


@pytest.fixture
def pool() -> KVPool:
    return KVPool(LAYOUT)


def landed(pool: KVPool) -> tuple[PromptRecheck, FakeSequence]:
    recheck, sequence = PromptRecheck(pool), FakeSequence()
    recheck.landed(sequence)  # type: ignore[arg-type]
    return recheck, sequence


def test_one_changed_byte_of_a_whole_page_is_counted(pool: KVPool) -> None:
    """A byte that another request wrote into the prompt's second page."""
    recheck, sequence = landed(pool)
    pool.bytes_view()[0, 1, 0, 1, 31] = 1
    recheck.ends(sequence)  # type: ignore[arg-type]
    assert (recheck.rechecked, recheck.changed) == (1, 1)


def test_tokens_behind_the_prompt_are_no_change(pool: KVPool) -> None:
    """Decode writes into the page that the prompt only began, and into further ones."""
    recheck, sequence = landed(pool)
    pool.bytes_view()[:, :, :, 2] = 7
    sequence.pages.append(3)
    recheck.ends(sequence)  # type: ignore[arg-type]
    assert (recheck.rechecked, recheck.changed) == (1, 0)


def test_a_retracted_sequence_is_not_compared(pool: KVPool) -> None:
    """Its pages are others now, and the old ones may be anybody's."""
    recheck, sequence = landed(pool)
    sequence.pages = [6, 7, 4]
    pool.bytes_view()[:, :, :, 5] = 9
    recheck.ends(sequence)  # type: ignore[arg-type]
    assert (recheck.rechecked, recheck.changed) == (0, 0)
