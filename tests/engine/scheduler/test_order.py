"""Who is computed first: short before long, nobody for ever last, the oldest never retracted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import Role
from engine.transfer.interface import FirstToken, Landed, WantPages
from tests.engine.scheduler.building import Rig, generate


def prompt(first: int, tokens: int) -> list[int]:
    """Return a prompt that shares nothing with one of another `first`."""
    return [first] * tokens


def test_a_short_prompt_goes_before_the_rest_of_a_long_one() -> None:
    """64 tokens are at work when 4 come: these are computed in the next step, the long one gets the rest of it."""
    rig = Rig(Role.UNIFIED, kv_tokens=256)
    rig.send(generate("long", prompt=64))
    rig.send(generate("short", 0, prompt_ids=prompt(1, 4)))
    assert rig.chunks(1) == [("short", 0, 4), ("long", 8, 4)]


def test_a_long_prompt_is_overtaken_only_as_long_as_it_would_take_itself() -> None:
    """40 tokens, and every 2 ms a prompt of 8 that fills a whole step: those of the first 32 ms go first."""
    rig = Rig(Role.UNIFIED, kv_tokens=4096, max_queued=200)
    rig.send(generate("long", prompt=40, max_tokens=1))
    first_chunk = rig.chunks(0)[0][2]
    came: dict[str, int] = {}
    for number in range(1, 100):
        rig.clock.advance(0.002)
        came[str(number)] = 2 * number
        rig.send(generate(str(number), 0, prompt_ids=prompt(number, 8), max_tokens=1))
        if rig.tokens("long"):
            break
    before = [rid for rid, _, _ in rig.chunks() if rid != "long"]
    # 40 - 8 tokens are left after the first step: as if the long one had come 32 ms later; the others, 8 ms.
    assert first_chunk == 8
    assert max(came[rid] for rid in before) <= 32 - 8
    assert rig.tokens("long") == [140]


def test_equal_prompts_go_in_the_order_of_arrival() -> None:
    """Four prompts of a whole step each."""
    rig = Rig(Role.UNIFIED, kv_tokens=256)
    rig.send(*(generate(rid, 0, prompt_ids=prompt(at, 8)) for at, rid in enumerate("abcd")))
    rig.turn_until_idle()
    assert [rid for rid, _, _ in rig.chunks()] == list("abcd")


def test_a_prompt_at_work_goes_on_when_the_next_lacks_pages() -> None:
    """A short one that cannot get its pages stops who comes after it, not who has begun."""
    rig = Rig(Role.UNIFIED, kv_tokens=32)
    rig.send(generate("long", prompt=28, max_tokens=1))
    rig.send(generate("short", 0, prompt_ids=prompt(1, 8), max_tokens=1))
    rig.turn_until_idle()
    assert [rid for rid, _, _ in rig.chunks()] == ["long"] * 4 + ["short"]
    assert rig.everything_is_free()


def test_a_prompt_waits_for_the_shared_pages_only() -> None:
    """Four tokens shared with a long prompt: after its first chunk the short one enters, long before its end."""
    rig = Rig(Role.UNIFIED, kv_tokens=256)
    rig.send(generate("long", prompt=64))
    rig.send(generate("short", 0, prompt_ids=[10, 11, 12, 13, 99]))
    rig.turn_until_idle()
    assert rig.chunks().index(("short", 4, 1)) < 4


def test_the_last_that_runs_on_decode_waits_for_pages_that_are_read() -> None:
    """Alone, with the rest of the pool in a room being read: it is not retracted, and the younger one is, later."""
    rig = Rig(Role.DECODE, kv_tokens=32)
    rig.send(generate("old", prompt=9, room=1, max_tokens=23))
    rig.happen(WantPages("old"))
    rig.happen(Landed("old", FirstToken(109, None, None, 0)))
    rig.send(generate("young", 0, prompt_ids=prompt(1, 16), room=2, max_tokens=4))
    rig.happen(WantPages("young"))
    rig.turn_until_idle()
    assert len(rig.tokens("old")) == 8
    assert rig.planner.retractions == 0
    rig.happen(Landed("young", FirstToken(116, None, None, 0)))
    rig.turn_until_idle()
    assert rig.tokens("old") == list(range(109, 132))
    assert rig.tokens("young") == [116, 117, 118, 119]
    assert rig.planner.retractions > 0
    assert rig.everything_is_free()


arrivals = st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(0, 30))
"""Prompt tokens, answer tokens, milliseconds until the next one comes."""


@settings(max_examples=60, deadline=None)
@given(st.lists(arrivals, min_size=16, max_size=16))
def test_sixteen_complete_in_a_pool_of_one_and_a_fifth(mix: list[tuple[int, int, int]]) -> None:
    """The longest request has 60 tokens, the pool 72; whenever they come, all complete as if alone."""
    rig = Rig(Role.UNIFIED, kv_tokens=72, max_queued=64, max_running=16)
    for at, (tokens, answer, pause_ms) in enumerate(mix):
        rig.send(generate(str(at), 0, prompt_ids=[at % 3, *range(50, 49 + tokens)], max_tokens=answer))
        rig.clock.advance(pause_ms / 1000)
    rig.turn_until_idle(3000)
    for at, (tokens, answer, _) in enumerate(mix):
        assert rig.tokens(str(at)) == list(range(100 + tokens, 100 + tokens + answer))
    assert rig.everything_is_free()
