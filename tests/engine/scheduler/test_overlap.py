"""The loop with `--schedule overlap`: what is planned ahead, what that costs, and when pages come back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Role, Schedule
from engine.messages import Abort, Delta, FinishReason
from engine.scheduler.step_plan import COMING
from engine.transfer.interface import Failed, FailReason, FirstToken, Landed, Paired, WantPages
from tests.engine.scheduler.building import EOS, Rig, generate


def overlapping(role: Role = Role.UNIFIED, **changes: object) -> Rig:
    """Return a loop that plans ahead, whose fake ranks finish one step a turn."""
    return Rig(role, schedule=Schedule.OVERLAP, **changes)


def taking_part(rig: Rig, rid: str) -> list[int]:
    """Return the numbers of the plans that a sequence is in."""
    return [plan.number for plan in rig.executor.plans if any(one.rid == rid for one in plan.sequences)]


def test_a_step_is_planned_before_the_tokens_of_the_one_before_are_known() -> None:
    """In its first turn: the prompt, and already the decode of the token that the prompt will give."""
    rig = overlapping()
    rig.send(generate("a", prompt=5))
    assert [one.tokens for plan in rig.executor.plans for one in plan.sequences] == [[10, 11, 12, 13, 14], [COMING]]
    assert rig.executor.plans[1].sequences[0].start == 5
    assert rig.tokens("a") == []


def test_never_more_than_two_steps_are_handed_out() -> None:
    """Steps 1 and 2 in the first turn, one more for each result."""
    rig = overlapping()
    rig.send(generate("a", prompt=5, max_tokens=20))
    handed_out = [len(rig.executor.plans)]
    for _ in range(3):
        rig.turn()
        handed_out.append(len(rig.executor.plans))
    assert handed_out == [2, 3, 4, 5]


def test_nothing_is_planned_behind_a_long_step() -> None:
    """A short prompt that comes while a chunk of 128 tokens is computed is in the very next step."""
    rig = overlapping(kv_tokens=1024, chunk_tokens=128)
    rig.send(generate("long", prompt=400))
    assert len(rig.executor.plans) == 1
    rig.inbox.messages.append(generate("short", 0, prompt_ids=[1, 2, 3]))
    rig.turn()
    assert rig.chunks(1)[0] == ("short", 0, 3)


def test_an_answer_that_ends_by_its_length_is_in_no_step_too_many() -> None:
    """A prompt and three decodes give four tokens."""
    rig = overlapping()
    rig.send(generate("a", prompt=5, max_tokens=4))
    rig.turn_until_idle()
    assert len(rig.executor.plans) == 4
    assert rig.tokens("a") == [105, 106, 107, 108]


def test_an_end_token_costs_one_step_and_no_token() -> None:
    """The third token is EOS: the plan that was made meanwhile is computed, and nobody hears of it."""
    rig = overlapping()
    rig.executor.ends_at["a"] = 7
    rig.send(generate("a", prompt=5, max_tokens=20))
    rig.turn_until_idle()
    assert rig.tokens("a") == [105, 106, EOS]
    assert [item.finish for item in rig.inbox.of("a") if isinstance(item, Delta)] == [None, None, FinishReason.STOP]
    assert len(rig.executor.plans) == 4
    assert rig.everything_is_free()


def test_pages_come_back_when_the_last_step_that_writes_to_them_is_done() -> None:
    """An answer of which the client has heard the end keeps its pages for one step."""
    rig = overlapping(prefix_cache=False)
    rig.executor.ends_at["a"] = 5
    rig.send(generate("a", prompt=5, max_tokens=20))
    rig.turn()
    assert rig.tokens("a") == [EOS]
    assert len(rig.book.queues) == 0
    assert rig.pages.ledger().running == 2
    rig.turn()
    assert rig.pages.free_count == rig.pages.total


def test_an_abort_acts_in_the_second_plan_after_it() -> None:
    """It comes while step 2 runs and step 3 waits: both are computed, no later one has the sequence."""
    rig = overlapping()
    rig.send(generate("a", prompt=5, max_tokens=40), generate("b", prompt=2, max_tokens=40))
    rig.turn()
    rig.send(Abort("a", "client left"))
    rig.turn(3)
    assert taking_part(rig, "a") == [1, 2, 3]
    assert taking_part(rig, "b") == [1, 2, 3, 4, 5, 6, 7]


def test_decode_reads_into_no_page_that_a_step_can_still_write_to() -> None:
    """The pool is full of an answer that ends; the room that waits for pages gets them one step later."""
    rig = overlapping(Role.DECODE, kv_tokens=32, prefix_cache=False)
    rig.executor.ends_at["old"] = 25
    rig.send(generate("old", prompt=24, room=1, max_tokens=8))
    rig.happen(WantPages("old"))
    rig.happen(Landed("old", FirstToken(124, None, None, 0)))
    rig.send(generate("next", prompt=28, room=2))
    rig.happen(WantPages("next"))
    grants: list[tuple[bool, bool]] = []
    while not any(call[:2] == ("grant", "next") for call in rig.transfer.calls):
        grants.append((EOS in rig.tokens("old"), bool(rig.executor.waiting)))
        rig.turn()
    assert grants[-1] == (True, False)


def test_nobody_is_retracted_while_a_step_runs() -> None:
    """Under pressure every retraction happens in a turn that found no step running, and the tokens are right."""
    rig = overlapping(kv_tokens=32)
    running: list[int] = []
    retract = rig.planner._retract_youngest

    def noting(now: float) -> None:
        running.append(len(rig.executor.waiting))
        retract(now)

    rig.planner._retract_youngest = noting  # type: ignore[method-assign]
    rig.send(generate("old", prompt=8, max_tokens=20), generate("young", prompt=8, max_tokens=20))
    rig.turn_until_idle()
    assert running
    assert set(running) == {0}
    for rid in ("old", "young"):
        assert rig.tokens(rid) == list(range(108, 128))


def test_the_chunk_of_a_failed_room_is_not_offered() -> None:
    """The room fails while its second chunk is computed: no READY for it, and its pages come back."""
    rig = overlapping(Role.PREFILL)
    rig.send(generate("a", prompt=30, room=7))
    rig.happen(Paired("a"))
    rig.happen(Failed("a", FailReason.PEER_GONE, "decode-0 went away"))
    rig.turn_until_idle()
    assert not any(call[0] == "ready" for call in rig.transfer.calls)
    assert rig.everything_is_free()


def test_a_prefill_room_is_in_no_step_after_its_first_token() -> None:
    """What follows is decode's."""
    rig = overlapping(Role.PREFILL)
    rig.send(generate("a", prompt=9, room=7, max_tokens=20))
    rig.happen(Paired("a"))
    rig.turn_until_idle()
    assert rig.chunks() == [("a", 0, 8), ("a", 8, 1)]
    assert len(rig.executor.plans) == 2


def test_the_runner_is_told_of_every_end() -> None:
    """Whatever was begun is forgotten with a later plan."""
    rig = overlapping()
    rig.executor.ends_at["stops"] = 9
    rig.send(generate("stops", prompt=8, max_tokens=20), generate("aborted", prompt=3, max_tokens=40))
    rig.turn(3)
    rig.send(Abort("aborted", "client left"))
    rig.turn_until_idle()
    rig.send(generate("last", prompt=3))
    rig.turn_until_idle()
    assert rig.executor.begun == {"last"}


def test_the_loop_that_turns_beside_a_hanging_step_shows_no_progress() -> None:
    """Messages are handled; the stuck clock, health and heartbeats see that nothing moves."""
    rig = overlapping()
    rig.executor.results_wait = False
    take, rig.executor.take = rig.executor.take, list  # type: ignore[method-assign]
    rig.send(generate("a", prompt=5))
    before = rig.progress.turns
    rig.send(generate("b", prompt=5))
    rig.turn(5)
    assert rig.progress.turns == before
    rig.executor.take = take  # type: ignore[method-assign]
    rig.turn()
    assert rig.progress.turns == before + 1


requests = st.fixed_dictionaries(
    {
        "kind": st.integers(0, 2),
        "prompt": st.integers(1, 24),
        "answer": st.integers(1, 24),
        "stops_after": st.none() | st.integers(1, 24),
        "aborted_in_turn": st.none() | st.integers(0, 30),
        "comes_in_turn": st.integers(0, 12),
    }
)
"""Which of three beginnings, prompt and answer tokens, and how it ends early."""


def told(mix: list[dict[str, Any]], schedule: Schedule) -> list[list[int]]:
    """Run a mix through a pool of 12 pages; return the tokens of each request."""
    rig = Rig(Role.UNIFIED, kv_tokens=48, max_queued=64, schedule=schedule)
    for at, one in enumerate(mix):
        if one["stops_after"] is not None:
            rig.executor.ends_at[str(at)] = one["prompt"] + one["stops_after"] - 1
    for turn in range(31):
        for at, one in enumerate(mix):
            if one["comes_in_turn"] == turn:
                ids = [*([one["kind"]] * 6), *range(50, 74)][: one["prompt"]]
                rig.inbox.messages.append(generate(str(at), 0, prompt_ids=ids, max_tokens=one["answer"]))
            if one["aborted_in_turn"] == turn:
                rig.inbox.messages.append(Abort(str(at), "client left"))
        rig.turn()
    rig.turn_until_idle(3000)
    assert rig.everything_is_free()
    return [rig.tokens(str(at)) for at in range(len(mix))]


def expected(at: int, one: dict[str, Any]) -> list[int]:
    """Return what a request gets that nobody aborts."""
    tokens = [100 + one["prompt"] + position for position in range(one["answer"])]
    if one["stops_after"] is not None and one["stops_after"] <= one["answer"]:
        tokens = [*tokens[: one["stops_after"] - 1], EOS]
    return tokens


@pytest.mark.parametrize("schedule", Schedule)
@settings(max_examples=150, deadline=None)
@given(mix=st.lists(requests, min_size=1, max_size=10))
def test_any_mix_gets_its_tokens_whatever_is_aborted(mix: list[dict[str, Any]], schedule: Schedule) -> None:
    """Ends, aborts, shared beginnings, retractions: all tokens, or a beginning of them for who was aborted."""
    for at, (one, tokens) in enumerate(zip(mix, told(mix, schedule), strict=True)):
        whole = expected(at, one)
        assert tokens == (whole if one["aborted_in_turn"] is None else whole[: len(tokens)])
