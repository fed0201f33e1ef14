"""The deal of heads, MLP rows and words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.model.config import Architecture, ModelConfig
from engine.parallel.deal import deal, split

SMOLLM2 = ModelConfig(
    architecture=Architecture.LLAMA,
    layers=30,
    hidden=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn=1536,
    vocab=49152,
    context_length=8192,
    rms_eps=1e-5,
    rope_theta=1e5,
    rope_divisors=None,
    tied_embeddings=True,
    qkv_bias=False,
    qk_norm=False,
    bos_id=1,
    eos_ids=(2,),
)


@st.composite
def deals(draw: st.DrawFn) -> tuple[ModelConfig, int]:
    """A model and a number of ranks that it can be dealt to."""
    kv_heads, group = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    size = draw(st.integers(1, kv_heads * group))
    ffn, vocab = draw(st.integers(size, 4096)), draw(st.integers(size, 4096))
    return replace(SMOLLM2, heads=kv_heads * group, kv_heads=kv_heads, ffn=ffn, vocab=vocab), size


def test_three_kv_heads_among_two_ranks_are_two_and_one() -> None:
    """SmolLM2: 9 query heads go with their KV heads, 6 + 3."""
    first, second = deal(SMOLLM2, 2)
    assert (first.kv_heads, first.heads) == (range(2), range(6))
    assert (second.kv_heads, second.heads) == (range(2, 3), range(6, 9))
    assert (first.ffn, second.ffn) == (range(768), range(768, 1536))
    assert second.vocab == range(24576, 49152)


def test_fewer_kv_heads_than_ranks_are_held_twice() -> None:
    """SmolLM2 among four: the first KV head is on two ranks, which share its three query heads."""
    shares = deal(SMOLLM2, 4)
    assert [share.kv_heads for share in shares] == [range(1), range(1), range(1, 2), range(2, 3)]
    assert [share.heads for share in shares] == [range(2), range(2, 3), range(3, 6), range(6, 9)]


@given(deals())
def test_every_query_head_row_and_word_is_on_exactly_one_rank(case: tuple[ModelConfig, int]) -> None:
    """Laid side by side, the shares are the whole model, and no rank goes without."""
    config, size = case
    shares = deal(config, size)
    for part, total in (("heads", config.heads), ("ffn", config.ffn), ("vocab", config.vocab)):
        held = [number for share in shares for number in getattr(share, part)]
        assert held == list(range(total))
        assert all(getattr(share, part) for share in shares)


@given(deals())
def test_every_query_head_finds_its_kv_head_on_its_own_rank(case: tuple[ModelConfig, int]) -> None:
    """And on each rank the query heads divide evenly among its KV heads, as attention needs."""
    config, size = case
    group = config.heads // config.kv_heads
    for share in deal(config, size):
        assert {head // group for head in share.heads} == set(share.kv_heads)
        assert len(share.heads) % len(share.kv_heads) == 0


@given(deals())
def test_no_kv_head_is_held_twice_where_there_are_enough(case: tuple[ModelConfig, int]) -> None:
    """And loads differ by one KV head at most."""
    config, size = case
    shares = deal(config, size)
    counts = [len(share.kv_heads) for share in shares]
    assert sum(counts) == max(config.kv_heads, size)
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("size", [0, 10])
def test_a_rank_without_a_query_head_is_refused(size: int) -> None:
    """With the number that is possible."""
    with pytest.raises(ConfigError, match=f"over {size} ranks: this model has 9 query heads"):
        deal(SMOLLM2, size)


@given(st.integers(1, 5000), st.integers(1, 16), st.integers(1, 64))
def test_parts_are_whole_units(total: int, parts: int, unit: int) -> None:
    """All borders but the end are multiples of the unit, and sizes differ by one unit at most."""
    cut = split(total, parts, unit)
    assert [number for part in cut for number in part] == list(range(total))
    assert all(part.start % unit == 0 for part in cut if part)
    units = [-(-len(part) // unit) for part in cut]
    assert max(units) - min(units) <= 1
