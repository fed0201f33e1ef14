"""Which bytes of which source rank land where, for every pair of deals."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kvcache.pool import KVLayout, KVPool
from engine.parallel.deal import split
from engine.transfer.data.checksums import differing_page, page_checksums, sums_of_heads
from engine.transfer.data.runs import Place, descriptors, merge
from engine.transfer.protocol.contract import contract_of, mismatch, pools_of, ranks_mismatch
from engine.transfer.protocol.head_runs import HeadRun, absent_heads, head_runs

LAYOUT = KVLayout(layers=2, kv_heads=1, pages=6, page_size=2, head_dim=2, dtype="float32", item_bytes=4)
SOURCE_PAGES, READER_PAGES = [4, 5, 1], [0, 1, 3]


def dealt(heads: int, ranks: int) -> list[range]:
    """Deal KV heads as an instance does: in runs, or one head to several ranks."""
    if ranks <= heads:
        return list(split(heads, ranks))
    return [range(head, head + 1) for head, holders in enumerate(split(ranks, heads)) for _ in holders]


@st.composite
def deals(draw: st.DrawFn) -> tuple[int, list[range], list[range]]:
    """The model's KV heads, and how prefill and decode deal them."""
    heads = draw(st.integers(1, 6))
    return heads, *(dealt(heads, draw(st.integers(1, 8))) for _ in range(2))


def pools(heads_by_rank: list[range]) -> list[KVPool]:
    return [
        KVPool(KVLayout(2, len(heads), LAYOUT.pages, LAYOUT.page_size, LAYOUT.head_dim, "float32", 4))
        for heads in heads_by_rank
    ]


def test_uneven_groups_are_read_from_both_ranks() -> None:
    """Two ranks with 2 + 1 heads, read by two that hold 1 + 2."""
    assert head_runs([range(2), range(2, 3)], [range(1), range(1, 3)]) == (
        HeadRun(source_rank=0, reader_rank=0, source_head=0, reader_head=0, count=1),
        HeadRun(source_rank=0, reader_rank=1, source_head=1, reader_head=0, count=1),
        HeadRun(source_rank=1, reader_rank=1, source_head=0, reader_head=1, count=1),
    )


def test_a_head_on_several_ranks_is_read_from_the_first() -> None:
    """Of four ranks with three heads the second one is not read from."""
    runs = head_runs([range(1), range(1), range(1, 2), range(2, 3)], [range(3)])
    assert [(run.source_rank, run.reader_head) for run in runs] == [(0, 0), (2, 1), (3, 2)]


@given(deals())
def test_every_reader_gets_each_of_its_heads_once(case: tuple[int, list[range], list[range]]) -> None:
    """Whatever the two deals, and from a rank that holds it."""
    _, sources, readers = case
    got: dict[int, list[int]] = {rank: [] for rank in range(len(readers))}
    for run in head_runs(sources, readers):
        read = [sources[run.source_rank][place] for place in run.in_source]
        assert read == [readers[run.reader_rank][place] for place in run.in_reader]
        got[run.reader_rank] += read
    assert got == {rank: list(heads) for rank, heads in enumerate(readers)}


@settings(max_examples=60, deadline=None)
@given(deals())
def test_copying_the_runs_gives_every_rank_its_heads_of_the_pages(case: tuple[int, list[range], list[range]]) -> None:
    """Byte for byte, with descriptors as a READ gets them; every other byte stays, and the cut checksums fit."""
    heads, sources, readers = case
    whole = np.random.default_rng(heads).integers(0, 256, (2, 2, heads, 3, 16), dtype=np.uint8)
    held, wanted = pools(sources), pools(readers)
    for pool, part in zip(held, sources, strict=True):
        pool.bytes_view()[:, :, :, SOURCE_PAGES] = whole[:, :, part.start : part.stop]
    runs = merge(SOURCE_PAGES, READER_PAGES)
    for run in head_runs(sources, readers):
        source, reader = held[run.source_rank], wanted[run.reader_rank]
        here, there = descriptors(Place(0, source.layout), Place(0, reader.layout), runs, run)
        from_bytes, to_bytes = (pool.bytes_view().reshape(-1) for pool in (source, reader))
        for (to, size, _), (start, same, _) in zip(here.tolist(), there.tolist(), strict=True):
            assert size == same
            to_bytes[to : to + size] = from_bytes[start : start + size]
        sums = page_checksums(source, SOURCE_PAGES)
        for first in range(3):
            expected = sums_of_heads(sums, source.layout.kv_heads, first, run)
            assert differing_page(reader, READER_PAGES[first:], expected, run.in_reader) is None
    for pool, part in zip(wanted, readers, strict=True):
        view = pool.bytes_view()
        assert np.array_equal(view[:, :, :, READER_PAGES], whole[:, :, part.start : part.stop])
        assert not view[:, :, :, [2, 4, 5]].any()


def test_a_head_that_nobody_holds_is_named() -> None:
    """With what there is; both sides come to the same words."""
    prefill, decode = pools_of(LAYOUT, [range(1), range(1, 2)]), pools_of(LAYOUT, [range(3)])
    assert absent_heads([range(1), range(1, 2)], [range(3)]) == [2]
    assert ranks_mismatch(prefill, decode) == ("kv.ranks: decode needs the KV heads [2], prefill's ranks hold 0 | 1")


def test_ranks_that_are_cut_differently_are_refused() -> None:
    """A page number must mean the same on all ranks of a side."""
    prefill = pools_of(LAYOUT, [range(1), range(1, 2)])
    other = pools_of(KVLayout(2, 1, 7, 2, 2, "float32", 4), [range(1, 2)])
    found = ranks_mismatch([prefill[0], *other], prefill)
    assert found is not None
    assert found.startswith("kv.ranks: the ranks of prefill are cut differently: [(2, 6, 2, 2, 4), (2, 7")


def test_a_side_without_ranks_is_refused() -> None:
    """A HELLO that names none gives no IndexError."""
    assert ranks_mismatch([], pools_of(LAYOUT, [range(1)])) == "kv.ranks: prefill names no rank"


def test_another_number_of_ranks_is_no_mismatch() -> None:
    """Another number of heads in all is one."""
    one, two, fewer = (pools_of(LAYOUT, heads) for heads in ([range(3)], [range(2), range(2, 3)], [range(2)]))
    assert mismatch(contract_of("m", True, one), contract_of("m", True, two)) is None
    assert ranks_mismatch(one, two) is None
    assert mismatch(contract_of("m", True, one), contract_of("m", True, fewer)) == "kv_heads: here '3', peer '2'"
