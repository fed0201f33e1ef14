"""The loop as `unified`: batching, chunking, page pressure, ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Role
from engine.messages import Abort, Delta, Drain, Failure, FinishReason, SamplingParams
from engine.model.checkpoint import open_checkpoint
from engine.model.sampling import Fault
from engine.scheduler.instance import context_length
from engine.scheduler.rank import kv_layout
from tests.engine.scheduler.building import Rig, generate


def test_a_prompt_is_computed_in_chunks_of_whole_pages() -> None:
    """19 tokens with a budget of 8 and pages of 4: 8, 8, 3."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=19, max_tokens=1))
    rig.turn_until_idle()
    assert [length for _, _, length in rig.chunks()] == [8, 8, 3]


def test_two_prompts_share_a_step_and_the_second_stops_at_a_page() -> None:
    """After 3 tokens of the first, 5 of the budget are left: one whole page of the second."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=3), generate("b", prompt=9))
    assert rig.chunks(0) == [("a", 0, 3), ("b", 0, 4)]


def test_tokens_follow_from_all_tokens_before_them() -> None:
    """The fake model says 100 + number of tokens it has seen."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=5, max_tokens=3))
    rig.turn_until_idle()
    assert rig.tokens("a") == [105, 106, 107]
    assert rig.everything_is_free()


def test_the_last_delta_says_why_it_ended() -> None:
    """max_tokens ends with `length`."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=5, max_tokens=2))
    rig.turn_until_idle()
    assert [item.finish for item in rig.inbox.of("a") if isinstance(item, Delta)] == [None, FinishReason.LENGTH]


def test_decoding_goes_on_while_another_prompt_is_computed() -> None:
    """A step holds the running decode and the newcomer's chunk."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=4, max_tokens=20))
    rig.send(generate("b", prompt=8))
    assert rig.decodes(-1) == ["a"]
    assert [rid for rid, _, _ in rig.chunks(-1)] == ["b"]


def test_the_youngest_is_retracted_and_gets_the_same_tokens() -> None:
    """Two answers that together need more than the pool both complete, as if alone."""
    rig = Rig(Role.UNIFIED, kv_tokens=32)
    rig.send(generate("old", prompt=8, max_tokens=20), generate("young", prompt=8, max_tokens=20))
    rig.turn_until_idle()
    assert rig.planner.retractions > 0
    for rid in ("old", "young"):
        assert rig.tokens(rid) == list(range(108, 128))
    assert rig.everything_is_free()


def test_the_pool_is_as_large_as_the_limits_say(tiny_model_dir: Path) -> None:
    """10 tokens in pages of 4 are a pool of 8: the longest request that is let in is served, and the next one too."""
    rig = Rig(Role.UNIFIED, kv_tokens=10)
    model = open_checkpoint(tiny_model_dir).config
    longest = context_length(rig.config, model)
    assert longest == rig.config.pool_tokens == 8
    rig.send(generate("longest", prompt=longest, sampling=SamplingParams(max_tokens=0)), generate("next", prompt=1))
    rig.turn_until_idle()
    assert [type(answer) for answer in rig.inbox.of("longest")] == [Delta]
    assert rig.tokens("next") == [101, 102, 103, 104]
    assert kv_layout(rig.config, model, 1).pages == rig.pages.total


def test_the_oldest_is_never_retracted() -> None:
    """The first to come is told a token in every step from its first to its last."""
    rig = Rig(Role.UNIFIED, kv_tokens=32)
    rig.send(generate("old", prompt=8, max_tokens=20), *(generate(f"y{i}", prompt=6, max_tokens=20) for i in range(3)))
    rig.turn_until_idle()
    steps = ["old" in rig.decodes(step) for step in range(len(rig.executor.plans))]
    assert steps.index(True) + 19 == len(steps) - steps[::-1].index(True)


def test_a_score_computes_no_token() -> None:
    """max_tokens 0 answers once, with `length` and no token."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=5, sampling=SamplingParams(max_tokens=0)))
    rig.turn_until_idle()
    (answer,) = rig.inbox.of("a")
    assert isinstance(answer, Delta)
    assert (answer.token_ids, answer.finish) == ([], FinishReason.LENGTH)
    assert rig.everything_is_free()


def test_an_abort_frees_everything_at_once() -> None:
    """By request id, all sequences of that request end."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=5, max_tokens=30), generate("b", prompt=30, request_id="request-a"))
    rig.send(Abort("request-a", "client left"))
    assert rig.everything_is_free()
    assert [r.reason for r in rig.book.journal.recent()] == ["client left", "client left"]


def test_a_satisfied_abort_is_no_failure() -> None:
    """A stop string found by the frontend closes the record, answers no error and is counted as `stop`."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=5, max_tokens=30))
    rig.send(Abort("a", "stop string", satisfied=True))
    assert rig.everything_is_free()
    assert [r.state for r in rig.book.journal.recent()] == ["closed"]
    assert rig.book.results == {"stop": 1}
    assert not any(isinstance(item, Failure) for item in rig.inbox.answers)


def test_a_deadline_ends_a_request_with_503() -> None:
    """Counted from the arrival of the HTTP request."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=5, max_tokens=50, deadline_s=10.0))
    rig.clock.advance(10)
    rig.turn()
    failure = rig.inbox.of("a")[-1]
    assert isinstance(failure, Failure)
    assert (failure.status, failure.code) == (503, "deadline")
    assert rig.everything_is_free()


def test_too_many_waiting_are_refused_at_once() -> None:
    """Four run, eight wait, the thirteenth is told `queue_full`."""
    rig = Rig(Role.UNIFIED, kv_tokens=4096, chunk_tokens=64)
    rig.send(*(generate(f"run{i}", prompt=4, max_tokens=50) for i in range(4)))
    rig.send(*(generate(f"wait{i}", prompt=4) for i in range(9)))
    failures = [item for item in rig.inbox.answers if isinstance(item, Failure)]
    assert [(f.rid, f.status, f.code) for f in failures] == [("wait8", 503, "queue_full")]


def test_a_drain_finishes_what_is_there_and_refuses_the_rest() -> None:
    """`run` returns when the last one is done."""
    rig = Rig(Role.UNIFIED)
    rig.send(generate("a", prompt=5, max_tokens=3))
    rig.send(Drain())
    rig.send(generate("late", prompt=5))
    rig.loop.run()
    assert rig.tokens("a") == [105, 106, 107]
    late = rig.inbox.of("late")[-1]
    assert isinstance(late, Failure)
    assert late.code == "draining"


@pytest.mark.parametrize(
    ("fault", "status", "code", "cached"),
    [(Fault.BROKEN_LOGITS, 500, "broken_logits", 0), (Fault.NO_TOKEN_LEFT, 400, "no_token_left", 2)],
)
def test_what_gives_no_token_fails_its_request_and_no_other(fault: Fault, status: int, code: str, cached: int) -> None:
    """Its neighbour gets its tokens. Pages of broken logits are forgotten; a request's own fault spoils none."""
    rig = Rig(Role.UNIFIED)
    rig.executor.faults["bad"] = fault
    rig.send(generate("bad", prompt=8), generate("good", prompt=4, max_tokens=3))
    rig.turn_until_idle()
    (answer,) = rig.inbox.of("bad")
    assert isinstance(answer, Failure)
    assert (answer.status, answer.code) == (status, code)
    assert rig.tokens("good") == [104, 105, 106]
    assert rig.everything_is_free()
    assert rig.pages.ledger().cached == cached


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 24), st.integers(1, 24)), min_size=1, max_size=12))
def test_any_mix_completes_with_the_tokens_of_a_solo_run(lengths: list[tuple[int, int]]) -> None:
    """Whatever fits the pool alone completes under pressure, and every page comes back."""
    rig = Rig(Role.UNIFIED, kv_tokens=48, max_queued=64)
    rig.send(*(generate(str(i), prompt=prompt, max_tokens=n) for i, (prompt, n) in enumerate(lengths)))
    rig.turn_until_idle(2000)
    for i, (prompt, n) in enumerate(lengths):
        assert rig.tokens(str(i)) == list(range(100 + prompt, 100 + prompt + n))
    assert rig.everything_is_free()
