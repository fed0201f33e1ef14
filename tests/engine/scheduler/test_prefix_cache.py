"""The loop with the prefix cache: computed once, read once, never wrong. (The fake model checks every page.)"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.config import Role, Schedule
from engine.messages import Abort, Delta, SamplingParams
from engine.model.sampling import Fault
from engine.transfer.interface import (
    Committed,
    Failed,
    FailReason,
    Fenced,
    FirstToken,
    Landed,
    Paired,
    WantPages,
)
from tests.engine.scheduler.building import Rig, generate


def computed(rig: Rig, rid: str) -> int:
    """Return how many prompt tokens were computed for a sequence."""
    return sum(length for one, _, length in rig.chunks() if one == rid)


def told_as_cached(rig: Rig, rid: str) -> int:
    """Return what the client's usage will show."""
    return max(item.cached_tokens for item in rig.inbox.of(rid) if isinstance(item, Delta))


def grants(rig: Rig) -> list[tuple[object, ...]]:
    """Return rid, pages and cached tokens of each grant."""
    return [call[1:] for call in rig.transfer.calls if call[0] == "grant"]


def land(rig: Rig, rid: str, token: int = 109) -> None:
    """Have a room of a decode rig read and commit."""
    rig.happen(WantPages(rid))
    rig.happen(Landed(rid, FirstToken(token, None, None, 0)))


def test_the_second_time_only_the_rest_of_a_prompt_is_computed() -> None:
    """Of 19 tokens four pages are found and three tokens computed; usage says 16."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=19))
    rig.turn_until_idle()
    rig.send(generate("b", prompt=19))
    rig.turn_until_idle()
    assert (computed(rig, "a"), computed(rig, "b")) == (19, 3)
    assert (told_as_cached(rig, "a"), told_as_cached(rig, "b")) == (0, 16)
    assert rig.tokens("a") == rig.tokens("b")
    assert (rig.cache.asked_tokens, rig.cache.hit_tokens) == (38, 16)
    assert rig.everything_is_free()


def test_the_last_token_is_always_computed() -> None:
    """A prompt of whole pages, all of them cached, still computes its last page."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=16))
    rig.turn_until_idle()
    rig.send(generate("b", prompt=16))
    rig.turn_until_idle()
    assert computed(rig, "b") == 4


def test_the_next_turn_of_a_chat_finds_the_answer_too() -> None:
    """8 prompt and 9 answer tokens, whose last was never computed: four pages."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=8, max_tokens=9))
    rig.turn_until_idle()
    history = [*range(10, 18), *rig.tokens("a"), 7, 7, 7]
    rig.send(generate("b", prompt=0, prompt_ids=history))
    rig.turn_until_idle()
    assert computed(rig, "b") == len(history) - 16


def test_switched_off_everything_is_computed() -> None:
    """--no-prefix-cache: the second costs as much as the first, and every page is free."""
    rig = Rig(Role.UNIFIED, prefix_cache=False)
    rig.send(generate("a", prompt=19))
    rig.turn_until_idle()
    rig.send(generate("b", prompt=19), generate("c", prompt=19))
    rig.turn_until_idle()
    assert [computed(rig, rid) for rid in "abc"] == [19, 19, 19]
    assert rig.pages.free_count == rig.pages.total


def test_choices_that_come_together_compute_their_prompt_once() -> None:
    """Four choices of 19 tokens: one computes all, three wait for its pages and compute three tokens each."""
    rig = Rig(Role.UNIFIED, kv_tokens=256)
    rig.send(*(generate(rid, prompt=19, request_id="r") for rid in "abcd"))
    rig.turn_until_idle()
    assert [computed(rig, rid) for rid in "abcd"] == [19, 3, 3, 3]
    assert all(rig.tokens(rid) == [119, 120, 121, 122] for rid in "abcd")


def test_who_waits_for_another_is_overtaken() -> None:
    """While a choice waits for the first one's pages, a prompt that shares nothing goes on."""
    rig = Rig(Role.UNIFIED, kv_tokens=256, chunk_tokens=32)
    rig.send(generate("a", prompt=12), generate("twin", prompt=12), generate("other", prompt=0, prompt_ids=[1] * 16))
    assert [rid for rid, _, _ in rig.chunks(0)] == ["a", "other"]


def test_who_waited_for_one_that_ended_early_computes_itself() -> None:
    """The first choice is aborted in the middle of its prompt; the second goes on from what it left."""
    rig = Rig(Role.UNIFIED, kv_tokens=256)
    rig.send(generate("a", prompt=32, deadline_s=1.0), generate("b", prompt=32))
    rig.clock.advance(1)
    rig.turn_until_idle()
    assert (computed(rig, "a"), computed(rig, "b")) == (8, 24)
    assert rig.tokens("b") == [132, 133, 134, 135]


def test_nobody_waits_for_what_is_cached_while_it_is_computed_again() -> None:
    """A long prompt is scored, so all of it is computed; a shorter one needs one token, and gets it at once."""
    rig = Rig(Role.UNIFIED, kv_tokens=512)
    rig.send(generate("first", prompt=64))
    rig.turn_until_idle()
    scored = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    rig.send(generate("scored", prompt=128, sampling=scored))
    before = len(rig.executor.plans)
    rig.send(generate("cached", prompt=65))
    assert next(rid for rid, _, _ in rig.chunks(before)) == "cached"


def test_scored_tokens_are_computed() -> None:
    """Prompt logprobs from position 9 on need the logits of position 8: two pages may be cached, no third."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=19))
    rig.turn_until_idle()
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, prompt_logprobs_start=9)
    rig.send(generate("b", prompt=19, sampling=params))
    rig.turn_until_idle()
    assert computed(rig, "b") == 11


def test_pages_of_broken_logits_are_not_kept() -> None:
    """NaN in the pool would spoil whoever finds it: afterwards nothing is cached."""
    rig = Rig(Role.UNIFIED)
    rig.executor.faults["bad"] = Fault.BROKEN_LOGITS
    rig.send(generate("bad", prompt=19))
    rig.turn_until_idle()
    assert rig.pages.free_count == rig.pages.total
    rig.send(generate("good", prompt=19))
    rig.turn_until_idle()
    assert computed(rig, "good") == 19


@pytest.mark.parametrize("room", [None, 1])
@pytest.mark.parametrize("schedule", Schedule)
def test_pages_of_broken_logits_are_not_kept_of_one_that_left(schedule: Schedule, room: int | None) -> None:
    """Its client goes while the chunk is computed; with a room it waits for the end of that, without it is gone."""
    rig = Rig(Role.PREFILL, schedule=schedule)
    rig.executor.faults["bad"] = Fault.BROKEN_LOGITS
    rig.executor.results_wait = True
    rig.send(generate("bad", prompt=8, room=room))
    rig.happen(Paired("bad"))
    rig.send(Abort("bad", "client left"))
    rig.happen(Failed("bad", FailReason.ABORTED, ""))
    rig.turn_until_idle()
    assert rig.pages.free_count == rig.pages.total


def test_pages_are_held_for_a_peer_only_while_it_reads() -> None:
    """Another prompt has found them: once the room is committed they are held by that one alone."""
    rig = Rig(Role.PREFILL, kv_tokens=256)
    for rid, room in (("a", 1), ("b", 2)):
        rig.send(generate(rid, prompt=19, room=room))
        rig.happen(Paired(rid))
        rig.turn_until_idle()
    rig.send(generate("c", prompt=64))
    held = [rig.pages.ledger().held_for_peer]
    for rid in "ab":
        rig.happen(Committed(rid))
        held.append(rig.pages.ledger().held_for_peer)
    assert held == [6, 5, 0]
    assert rig.pages.ledger().pinned > 0
    rig.turn_until_idle()
    assert rig.everything_is_free()


def test_a_retracted_sequence_finds_what_was_not_needed() -> None:
    """It computes again only pages that were given away, and its tokens are the same."""
    rig = Rig(Role.UNIFIED, kv_tokens=48)
    rig.send(
        generate("old", prompt=8, max_tokens=20),
        generate("young", prompt=0, prompt_ids=list(range(50, 62)), max_tokens=20),
    )
    rig.turn_until_idle()
    assert rig.planner.retractions > 0
    assert rig.tokens("young") == list(range(112, 132))
    again = computed(rig, "young") - 12
    assert 0 < again < rig.planner.retractions * 12
    assert rig.everything_is_free()


def test_prefill_says_ready_for_cached_pages_with_the_first_chunk() -> None:
    """The second room of the same prompt: one READY of all five pages, the first token of the first room."""
    rig = Rig(Role.PREFILL)
    for rid, room in (("a", 1), ("b", 2)):
        rig.send(generate(rid, prompt=19, room=room))
        rig.happen(Paired(rid))
        rig.turn_until_idle()
    assert [call for call in rig.transfer.calls if call[:2] == ("ready", "b")] == [("ready", "b", 0, 5, 119)]
    rig.happen(Committed("a"), Committed("b"))
    assert told_as_cached(rig, "b") == 0
    assert rig.everything_is_free()


def test_a_page_held_for_two_peers_outlives_the_first_commit() -> None:
    """Shared pages are held until the last room has ended."""
    rig = Rig(Role.PREFILL)
    for rid, room in (("a", 1), ("b", 2)):
        rig.send(generate(rid, prompt=9, room=room))
        rig.happen(Paired(rid))
        rig.turn_until_idle()
    rig.happen(Committed("a"))
    assert rig.pages.ledger().held_for_peer == 3
    rig.happen(Failed("b", FailReason.PEER_GONE, ""))
    assert rig.everything_is_free()


def test_decode_reads_only_what_it_lacks() -> None:
    """The second room is offered and granted with the two pages that the first has left."""
    rig = Rig(Role.DECODE)
    for rid, room in (("a", 1), ("b", 2)):
        rig.send(generate(rid, prompt=9, room=room))
        land(rig, rid)
        rig.turn_until_idle()
    assert [call[-1] for call in rig.transfer.calls if call[0] == "open"] == [0, 8]
    assert grants(rig) == [("a", 3, 0), ("b", 3, 8)]
    assert rig.tokens("b") == [109, 110, 111, 112]
    assert rig.everything_is_free()


def test_decode_looks_up_again_when_it_grants() -> None:
    """Between offer and grant the cached pages went to another: the room reads everything."""
    rig = Rig(Role.DECODE, kv_tokens=32)
    rig.send(generate("a", prompt=9, room=1, max_tokens=2))
    land(rig, "a")
    rig.turn_until_idle()
    rig.send(generate("b", prompt=9, room=2), generate("c", prompt=0, prompt_ids=list(range(50, 78)), room=3))
    land(rig, "c", token=128)
    rig.turn_until_idle()
    land(rig, "b")
    rig.turn_until_idle()
    assert grants(rig)[-1] == ("b", 3, 0)
    assert rig.tokens("b") == [109, 110, 111, 112]


def test_decode_reads_the_prompt_of_several_choices_once() -> None:
    """The second choice waits until the first has landed, then lacks only the last page."""
    rig = Rig(Role.DECODE)
    rig.send(*(generate(rid, prompt=9, room=room, request_id="r") for room, rid in enumerate("ab")))
    rig.happen(WantPages("a"), WantPages("b"))
    assert grants(rig) == [("a", 3, 0)]
    rig.happen(Landed("a", FirstToken(109, None, None, 0)))
    rig.turn()
    assert grants(rig)[-1] == ("b", 3, 8)


def test_decode_choice_that_waited_for_a_failed_one_reads_itself() -> None:
    """No choice depends on the luck of another."""
    rig = Rig(Role.DECODE)
    rig.send(*(generate(rid, prompt=9, room=room, request_id="r") for room, rid in enumerate("ab")))
    rig.happen(WantPages("a"), WantPages("b"))
    rig.happen(Failed("a", FailReason.READ_FAILED, ""))
    rig.turn()
    assert grants(rig)[-1] == ("b", 3, 0)
    rig.happen(Fenced("a"), Landed("b", FirstToken(109, None, None, 0)))
    rig.turn_until_idle()
    assert rig.everything_is_free()


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_decode_keeps_nothing_of_a_room_that_its_first_token_ended(finish: str) -> None:
    """Its pages may be partly unread."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=1))
    rig.happen(WantPages("a"))
    rig.happen(Landed("a", FirstToken(109, None, finish, 0)))
    assert rig.pages.free_count == rig.pages.total


def test_decode_keeps_nothing_of_a_failed_room() -> None:
    """Fenced pages are free pages."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=1))
    rig.happen(WantPages("a"))
    rig.happen(Failed("a", FailReason.PEER_GONE, ""))
    rig.happen(Fenced("a"))
    assert rig.pages.free_count == rig.pages.total


def test_decode_fences_only_its_own_pages() -> None:
    """No read touches the cached prefix: it may be used by others at once."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=1))
    land(rig, "a")
    rig.turn_until_idle()
    rig.send(generate("b", prompt=9, room=2))
    rig.happen(WantPages("b"))
    rig.happen(Failed("b", FailReason.PEER_GONE, ""))
    ledger = rig.pages.ledger()
    assert (ledger.fencing, ledger.cached) == (1, 3)


def test_waiting_rooms_pin_nothing() -> None:
    """An older room that needs the whole pool is not blocked by the cached prefix of a younger one."""
    rig = Rig(Role.DECODE, kv_tokens=32)
    rig.send(generate("a", prompt=9, room=1, max_tokens=2))
    land(rig, "a")
    rig.turn_until_idle()
    rig.send(
        generate("big", prompt=0, prompt_ids=list(range(50, 81)), room=2, max_tokens=1),
        generate("b", prompt=9, room=3),
    )
    rig.happen(WantPages("b"), WantPages("big"))
    assert grants(rig)[-1] == ("big", 8, 0)


prompts = st.tuples(st.integers(0, 2), st.integers(1, 24), st.integers(1, 24))
"""Which of three beginnings, prompt tokens, answer tokens."""


@settings(max_examples=200, deadline=None)
@given(st.lists(prompts, min_size=1, max_size=12))
@example([(0, 24, 1), (0, 24, 22)])  # The second needs the whole pool, and has a page that the cache has too.
def test_any_mix_that_shares_beginnings_completes_as_alone(mix: list[tuple[int, int, int]]) -> None:
    """Under pressure of a small pool, with hits, evictions and retractions, every token and every page is right."""
    rig = Rig(Role.UNIFIED, kv_tokens=48, max_queued=64)
    rig.send(
        *(
            generate(str(at), prompt=0, prompt_ids=[*([kind] * 6), *range(50, 74)][:length], max_tokens=answer)
            for at, (kind, length, answer) in enumerate(mix)
        )
    )
    rig.turn_until_idle(3000)
    for at, (_, length, answer) in enumerate(mix):
        assert rig.tokens(str(at)) == list(range(100 + length, 100 + length + answer))
    assert rig.everything_is_free()
