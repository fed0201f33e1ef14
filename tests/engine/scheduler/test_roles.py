"""The loop as `prefill` and as `decode`: what it asks of the transfer threads, and when pages change owner."""

from __future__ import annotations

import msgspec

from engine.config import Role
from engine.messages import Abort, Delta, Failure, FinishReason
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

FIRST = FirstToken(token_id=109, logprob=None, finish=None, cached_tokens=0)


def prefilled() -> Rig:
    """Return a prefill loop with one computed request `a` of 9 tokens in room 7, held for its peer."""
    rig = Rig(Role.PREFILL)
    rig.send(generate("a", prompt=9, room=7))
    rig.happen(Paired("a"))
    rig.turn_until_idle()
    return rig


def pages_in_use(rig: Rig) -> dict[str, int]:
    """Return owner -> pages, but for free and cached ones."""
    counts = msgspec.structs.asdict(rig.pages.ledger())
    return {owner: n for owner, n in counts.items() if n and owner not in ("total", "balanced", "free", "cached")}


def test_prefill_computes_only_what_was_offered() -> None:
    """A room without an offer holds nothing."""
    rig = Rig(Role.PREFILL)
    rig.send(generate("a", prompt=9, room=7))
    rig.turn(3)
    assert rig.transfer.calls == [("announce", "a", 7)]
    assert rig.executor.plans == []
    assert rig.pages.free_count == rig.pages.total


def test_prefill_says_ready_after_each_chunk_and_brings_the_first_token_with_the_last() -> None:
    """9 tokens: two pages, then the third with token 109."""
    rig = prefilled()
    assert rig.transfer.calls[1:] == [("ready", "a", 0, 2, None), ("ready", "a", 2, 1, 109)]


def test_prefill_holds_its_pages_until_commit() -> None:
    """COMMITTED frees them and answers the HTTP leg with the first token."""
    rig = prefilled()
    assert pages_in_use(rig) == {"held_for_peer": 3}
    assert rig.inbox.answers == []
    rig.happen(Committed("a"))
    assert rig.everything_is_free()
    assert rig.tokens("a") == [109]


def test_prefill_frees_pages_of_an_aborted_room_only_when_the_transfer_agrees() -> None:
    """Until `Failed`, a COMMIT may still win."""
    rig = prefilled()
    rig.send(Abort("a", "client left"))
    assert rig.transfer.calls[-1] == ("fail", "a", FailReason.ABORTED)
    assert pages_in_use(rig) == {"held_for_peer": 3}
    rig.happen(Failed("a", FailReason.ABORTED, "client left"))
    assert rig.everything_is_free()


def test_prefill_commit_that_wins_over_an_abort_counts() -> None:
    """The peer has the pages: the leg ends as handed over."""
    rig = prefilled()
    rig.send(Abort("a", "client left"))
    rig.happen(Committed("a"))
    assert rig.everything_is_free()
    assert rig.book.results["handed_over"] == 1


def test_a_failure_in_the_middle_of_a_prompt_stops_its_computation() -> None:
    """No chunk is computed after the room has failed."""
    rig = Rig(Role.PREFILL)
    rig.send(generate("a", prompt=30, room=7))
    rig.happen(Paired("a"))
    rig.happen(Failed("a", FailReason.PEER_GONE, "decode-0 went away"))
    rig.turn_until_idle()
    assert sum(length for _, _, length in rig.chunks()) == 8
    failure = rig.inbox.of("a")[-1]
    assert isinstance(failure, Failure)
    assert (failure.status, failure.code) == (502, "peer_gone")
    assert rig.everything_is_free()


def test_decode_offers_at_once_and_takes_pages_at_the_first_ready() -> None:
    """OFFER goes out before there are pages; WantPages gets pages for the whole prompt."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=7))
    assert rig.transfer.calls == [("open", "a", 7, "127.0.0.1:8998", 0)]
    assert rig.pages.free_count == rig.pages.total
    rig.happen(WantPages("a"))
    assert rig.transfer.calls[-1] == ("grant", "a", 3, 0)
    assert rig.pages.ledger().reading == 3


def test_decode_goes_on_from_the_first_token() -> None:
    """The landed token is told, the next one follows from 10 tokens."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=7, max_tokens=3))
    rig.happen(WantPages("a"))
    rig.happen(Landed("a", FIRST))
    rig.turn_until_idle()
    assert rig.tokens("a") == [109, 110, 111]
    assert rig.everything_is_free()


def test_decode_ends_with_a_first_token_that_finishes() -> None:
    """No page was ever taken."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=7))
    rig.happen(Landed("a", FirstToken(2, None, "stop", 0)))
    (answer,) = rig.inbox.of("a")
    assert isinstance(answer, Delta)
    assert answer.finish is FinishReason.STOP
    assert rig.everything_is_free()


def test_decode_fences_the_pages_of_a_failed_room() -> None:
    """Invariant 3: they come back with `Fenced`, not before; the client hears at once."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=7))
    rig.happen(WantPages("a"))
    rig.happen(Failed("a", FailReason.PEER_GONE, "prefill-0 went away"))
    assert rig.pages.ledger().fencing == 3
    assert isinstance(rig.inbox.of("a")[-1], Failure)
    rig.happen(Fenced("a"))
    assert rig.everything_is_free()


def test_decode_grants_in_order_and_not_more_than_fits() -> None:
    """16 pages: ten for the first, none for the second, whom the small third must not overtake."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=40, room=1), generate("b", prompt=40, room=2), generate("c", prompt=4, room=3))
    rig.happen(WantPages("c"), WantPages("b"), WantPages("a"))
    assert [call for call in rig.transfer.calls if call[0] == "grant"] == [("grant", "a", 10, 0)]


def test_decode_aborted_while_reading_waits_for_the_transfer() -> None:
    """The abort is asked for once, however often the client leaves."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=7))
    rig.happen(WantPages("a"))
    rig.send(Abort("a", "client left"), Abort("a", "client left"))
    assert rig.transfer.calls.count(("fail", "a", FailReason.ABORTED)) == 1
    assert rig.pages.ledger().reading == 3


def test_decode_landed_after_an_abort_frees_at_once() -> None:
    """COMMITTED won the race: nothing can write into the pages any more."""
    rig = Rig(Role.DECODE)
    rig.send(generate("a", prompt=9, room=7))
    rig.happen(WantPages("a"))
    rig.send(Abort("a", "client left"))
    rig.happen(Landed("a", FIRST))
    assert rig.everything_is_free()


def test_decode_tells_prefill_of_a_request_it_refuses() -> None:
    """A full queue sends REFUSED instead of OFFER, so that the other leg ends too, and answers 503 at once."""
    rig = Rig(Role.DECODE, max_queued=1)
    rig.send(generate("a", prompt=9, room=1), generate("b", prompt=9, room=2))
    assert rig.transfer.calls == [("open", "a", 1, "127.0.0.1:8998", 0), ("refuse", 2, "127.0.0.1:8998")]
    failure = rig.inbox.of("b")[-1]
    assert isinstance(failure, Failure)
    assert (failure.status, failure.code) == (503, "queue_full")
