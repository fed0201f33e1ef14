"""Runs, checksums, contract, clocks, outbox, registry records."""

from __future__ import annotations

import zlib
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kvcache.pool import KVLayout, KVPool
from engine.messages import TokenLogprob
from engine.transfer.control.registry import RegistryRecord, parse
from engine.transfer.data.checksums import differing_page, page_checksums
from engine.transfer.data.runs import Place, Run, descriptors, merge
from engine.transfer.data.source_orders import chunks_of
from engine.transfer.interface import FirstToken
from engine.transfer.protocol import frames
from engine.transfer.protocol.clocks import RESEND_S, PeerPulse
from engine.transfer.protocol.contract import contract_of, mismatch, pools_of
from engine.transfer.protocol.frames import MAX_FRAME_BYTES, Envelope, Ready, encode
from engine.transfer.protocol.head_runs import head_runs
from engine.transfer.protocol.outbox import Outbox

LAYOUT = KVLayout(layers=2, kv_heads=3, pages=8, page_size=4, head_dim=2, dtype="float32", item_bytes=4)


def test_neighbours_on_both_sides_are_one_run() -> None:
    """Pages merge only where source and target both continue."""
    assert merge([4, 5, 6, 9, 10], [1, 2, 7, 8, 9]) == [Run(4, 1, 2), Run(6, 7, 1), Run(9, 8, 2)]


def test_lists_of_different_length_are_refused() -> None:
    """A source page without a target page is an error, not a shorter read."""
    with pytest.raises(ValueError, match="shorter"):
        merge([1, 2], [3])


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_runs_cover_exactly_the_pages(pairs: list[tuple[int, int]]) -> None:
    """Expanding the runs gives the pages back in their order."""
    runs = merge([s for s, _ in pairs], [t for _, t in pairs])
    covered = [(run.source + i, run.target + i) for run in runs for i in range(run.count)]
    assert covered == pairs


def test_descriptors_copy_what_they_say() -> None:
    """Copying byte ranges as described moves whole pages into a pool with another number of pages."""
    source, target = KVPool(LAYOUT), KVPool(KVLayout(2, 3, 5, 4, 2, "float32", 4))
    source.tensor.copy_(source.tensor.new_tensor(range(source.tensor.numel())).view(source.tensor.shape))
    runs = merge([2, 3, 7], [0, 1, 4])
    (heads,) = head_runs([range(3)], [range(3)])
    here, there = descriptors(Place(0, source.layout), Place(0, target.layout), runs, heads)
    source_bytes, target_bytes = (p.bytes_view().reshape(-1) for p in (source, target))
    for (to, size, _), (start, same, _) in zip(here.tolist(), there.tolist(), strict=True):
        assert size == same
        target_bytes[to : to + size] = source_bytes[start : start + size]
    assert np.array_equal(target.tensor[:, :, :, [0, 1, 4]], source.tensor[:, :, :, [2, 3, 7]])
    assert target.tensor[:, :, :, [2, 3]].count_nonzero() == 0
    assert len(here) == 2 * 2 * 3 * 2


def test_checksum_is_crc32_of_a_head_over_all_layers() -> None:
    """Every (page, head) has the crc32 of its bytes, layer by layer, K before V."""
    pool = KVPool(LAYOUT)
    pool.tensor.random_()
    sums = np.frombuffer(page_checksums(pool, [6, 1]), dtype="<u4").reshape(2, 3)
    parts = [pool.tensor[layer, kv, 2, 1].numpy().tobytes() for layer in range(2) for kv in range(2)]
    assert sums[1, 2] == zlib.crc32(b"".join(parts))


def test_one_changed_byte_names_its_page() -> None:
    """A single flipped bit is found, and its position in the list is returned."""
    pool = KVPool(LAYOUT)
    pool.tensor.random_()
    sums = page_checksums(pool, [0, 5, 3])
    assert differing_page(pool, [0, 5, 3], sums) is None
    pool.bytes_view()[1, 0, 2, 5, 17] ^= 1
    assert differing_page(pool, [0, 5, 3], sums) == 1


def test_mismatch_names_field_and_both_values() -> None:
    """A refusal says which field differs, what is here and what is there."""
    assert mismatch({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) is None
    assert mismatch({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == (
        "b: here '2', peer 'absent'; c: here 'absent', peer '3'"
    )


def test_page_size_is_part_of_the_contract() -> None:
    """Pools that are cut differently do not fit; their numbers of pages may differ."""
    ours, more_pages, other_size = (
        contract_of("m", True, pools_of(KVLayout(2, 3, pages, page_size, 2, "float32", 4), [range(3)]))
        for pages, page_size in ((8, 4), (9, 4), (8, 2))
    )
    assert mismatch(ours, more_pages) is None
    assert mismatch(ours, other_size) == "page_size: here '4', peer '2'"


def test_checksums_are_part_of_the_contract() -> None:
    """A decode that verifies can use no chunk of a prefill that sums none: refused, not failed request by request."""
    pools = pools_of(KVLayout(2, 3, 8, 4, 2, "float32", 4), [range(3)])
    decode, prefill = contract_of("m", True, pools), contract_of("m", False, pools)
    assert mismatch(decode, prefill) == "checksums: here 'on', peer 'off'"


def test_silence_needs_more_than_the_limit() -> None:
    """A peer is silent after the limit, not at it."""
    pulse = PeerPulse(heard_at=100.0)
    assert not pulse.is_silent(105.0, 5.0)
    assert pulse.is_silent(105.01, 5.0)


def test_a_slow_loop_is_not_stuck() -> None:
    """The stuck clock allows ten of the longest steps, or its limit, whichever is more."""
    pulse = PeerPulse(heard_at=0.0)
    pulse.beat(0.0, loop_tick=5, longest_step_s=6.0)
    pulse.beat(59.0, loop_tick=5, longest_step_s=6.0)
    assert not pulse.is_stuck(60.0, 30.0)
    assert pulse.is_stuck(60.01, 30.0)


def test_a_moving_loop_resets_the_stuck_clock() -> None:
    """Any change of the tick is progress."""
    pulse = PeerPulse(heard_at=0.0)
    pulse.beat(0.0, 5, 0.1)
    pulse.beat(29.0, 6, 0.1)
    assert not pulse.is_stuck(58.0, 30.0)
    assert pulse.is_stuck(59.01, 30.0)


def test_outbox_repeats_until_answered() -> None:
    """A frame is due again after each interval, until its answer names it."""
    outbox = Outbox()
    commit = frames.Commit(3)
    outbox.add(commit, now=0.0)
    assert outbox.due(RESEND_S - 0.01) == []
    assert outbox.due(RESEND_S) == [commit]
    assert outbox.due(RESEND_S + 0.01) == []
    assert outbox.answer((3, "commit", 1)) is None
    assert outbox.answer((3, "commit", 0)) == commit
    assert outbox.due(100.0) == []


def test_chunks_are_answered_one_by_one() -> None:
    """READYs of one room are told apart by their first page."""
    outbox = Outbox()
    chunks = [frames.Ready(3, first, [first], [b""], False) for first in (0, 4)]
    for chunk in chunks:
        outbox.add(chunk, now=0.0)
    outbox.answer((3, "ready", 0))
    assert outbox.due(9.0) == [chunks[1]]


@pytest.mark.parametrize("heads", [1, 8, 512])
@pytest.mark.parametrize("count", [1, 100_000])
def test_the_ready_of_any_prompt_fits_into_frames(heads: int, count: int) -> None:
    """Pages come in order, each once; one frame that is too long would break the link, and again at each retry."""
    token = FirstToken(7, TokenLogprob(7, -1.5, [(2**31 - at, -1.5) for at in range(20)]), "stop", 2**31)
    pages = [2**31 - 1 - at for at in range(count)]
    chunks = list(chunks_of("r", 3, pages, token, heads))
    assert [page for chunk in chunks for page in chunk.pages] == pages
    assert [chunk.first_page for chunk in chunks] == list(accumulate((len(c.pages) for c in chunks[:-1]), initial=3))
    assert [chunk.first for chunk in chunks] == [None] * (len(chunks) - 1) + [token]
    for chunk in chunks[:2] + chunks[-1:]:
        sums = [bytes(4 * len(chunk.pages))] * heads
        ready = Ready(2**63 - 1, chunk.first_page, list(chunk.pages), sums, last=True, first_token=chunk.first)
        assert len(encode(Envelope("s" * 32, "d" * 32, 0, ready))) < MAX_FRAME_BYTES / 2


def test_registry_record_survives_json() -> None:
    """What a prefill publishes is what a decode reads."""
    import msgspec

    record = RegistryRecord(
        instance="p",
        incarnation="ab",
        role="prefill",
        control_endpoint="tcp://127.0.0.1:1",
        contract={"a": "b"},
    )
    assert parse(msgspec.json.encode(record)) == record


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"<html>", "no registry record"),
        (b'{"instance":"p"}', "no registry record"),
        (
            b'{"instance":"d","incarnation":"x","role":"decode","control_endpoint":"tcp://h:1","contract":{}}',
            "role decode",
        ),
        (
            b'{"instance":"p","incarnation":"x","role":"prefill","control_endpoint":"ipc:///x","contract":{}}',
            "not tcp",
        ),
    ],
)
def test_unusable_registry_answers_say_why(answer: bytes, why: str) -> None:
    """A wrong answer becomes a sentence, never an exception."""
    parsed = parse(answer)
    assert isinstance(parsed, str)
    assert why in parsed
