"""Both sides in one process, over real NIXL and ZeroMQ: what lands, what fails, and that both sides agree."""

from __future__ import annotations

import pytest

from engine.observe.records import Stage
from engine.transfer.data import source_orders
from engine.transfer.interface import Committed, Failed, FailReason, Fenced, Landed, Paired, WantPages
from tests.engine.transfer.pairs import Pair, pair_up
from tests.engine.transfer.transfer_sides import (
    LAST_TOKEN,
    PAGE_BYTES,
    PROMPT,
    SOURCE,
    TARGET,
    TOKEN,
    Decode,
    Prefill,
    eventually,
)


def endings(side: Prefill | Decode, rid: str) -> list[type]:
    return [type(e) for e in side.events_of(rid) if isinstance(e, Committed | Landed | Failed)]


def test_pages_land_byte_for_byte_in_chunks(pair: Pair, rid: str, room: int) -> None:
    """Two chunks into scattered pages arrive whole, with the first token, and are counted."""
    pair_up(pair, rid, room)
    pair.prefill.fill(SOURCE, seed=room)
    pair.prefill.transfer.ready(rid, 0, SOURCE[:2], None)
    pair.decode.await_event(WantPages, rid)
    pair.decode.transfer.grant(rid, TARGET)
    pair.prefill.transfer.ready(rid, 2, SOURCE[2:], TOKEN)
    assert pair.decode.await_event(Landed, rid).first == TOKEN
    pair.prefill.await_event(Committed, rid)
    assert pair.decode.holds(TARGET, seed=room)
    record = pair.decode.records[rid]
    assert (record.state, record.kv_bytes, record.peer) == ("landed", 4 * PAGE_BYTES, "prefill-0")
    assert {Stage.PAIRED, Stage.READING, Stage.LANDED} <= record.at.keys()
    assert pair.prefill.records[rid].peer_incarnation == pair.decode.config.incarnation


def test_what_is_too_much_for_a_frame_goes_in_several(
    pair: Pair, rid: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole prompt from the prefix cache, at once: READYs of two pages, the token with the last."""
    monkeypatch.setattr(source_orders, "READY_BYTES", 30)
    pair_up(pair, rid, room)
    pair.prefill.fill(SOURCE, seed=room)
    sent = pair.prefill.transfer._control.counters.frames
    before = sent["ready", "out"]
    pair.prefill.transfer.ready(rid, 0, SOURCE, TOKEN)
    pair.decode.await_event(WantPages, rid)
    pair.decode.transfer.grant(rid, TARGET)
    assert pair.decode.await_event(Landed, rid).first == TOKEN
    assert pair.decode.holds(TARGET, seed=room)
    assert sent["ready", "out"] - before >= 2


def test_the_offer_may_come_before_the_leg(pair: Pair, rid: str, room: int) -> None:
    """An OFFER waits for its HTTP leg."""
    pair.decode.open(rid, room, PROMPT)
    eventually(lambda: room in pair.prefill.transfer._control.rooms)
    pair.prefill.announce(rid, room, PROMPT)
    pair.prefill.await_event(Paired, rid)


def test_a_cached_prefix_is_not_read(pair: Pair, rid: str, room: int) -> None:
    """Pages of the prefix keep what decode has; only the others travel."""
    pair.prefill.announce(rid, room, PROMPT)
    pair.decode.open(rid, room, PROMPT, prefix_tokens=12)
    pair.prefill.await_event(Paired, rid)
    pair.prefill.fill(SOURCE, seed=room)
    pair.decode.fill(TARGET, seed=-room % 1000)
    pair.prefill.transfer.ready(rid, 0, SOURCE[:2], None)
    pair.prefill.transfer.ready(rid, 2, SOURCE[2:], TOKEN)
    pair.decode.await_event(WantPages, rid)
    pair.decode.transfer.grant(rid, TARGET)
    pair.decode.await_event(Landed, rid)
    assert pair.decode.holds(TARGET[:3], seed=-room % 1000)
    assert pair.decode.holds(TARGET[3:], seed=room, first=3)
    assert pair.decode.records[rid].kv_bytes == PAGE_BYTES


def test_a_first_token_that_ends_the_request_needs_no_pages(pair: Pair, rid: str, room: int) -> None:
    """Nothing is read and no page wanted, but both sides land."""
    pair_up(pair, rid, room)
    pair.prefill.transfer.ready(rid, 0, SOURCE, LAST_TOKEN)
    assert pair.decode.await_event(Landed, rid).first.finish == "stop"
    pair.prefill.await_event(Committed, rid)
    assert [type(event) for event in pair.decode.events_of(rid)] == [Landed]
    assert pair.decode.records[rid].kv_bytes == 0


@pytest.mark.parametrize("leg_first", [True, False])
@pytest.mark.parametrize("other", [PROMPT[:-1], [*PROMPT[:-1], 1]], ids=["length", "tokens"])
def test_different_prompts_are_refused_on_both_sides(
    pair: Pair, rid: str, room: int, leg_first: bool, other: list[int]
) -> None:
    """Length or ids that differ fail the room on both sides, in either order of the legs."""
    if leg_first:
        pair.prefill.announce(rid, room, PROMPT)
        pair.decode.open(rid, room, other)
    else:
        pair.decode.open(rid, room, other)
        eventually(lambda: room in pair.prefill.transfer._control.rooms)
        pair.prefill.announce(rid, room, PROMPT)
    assert pair.prefill.await_event(Failed, rid).reason is FailReason.PROMPT_MISMATCH
    assert pair.decode.await_event(Failed, rid).reason is FailReason.PROMPT_MISMATCH


def test_abort_before_the_leg_refuses_the_late_leg(pair: Pair, rid: str, room: int) -> None:
    """A room that decode ended leaves a tombstone for the HTTP leg that comes later."""
    pair.decode.open(rid, room, PROMPT)
    pair.decode.transfer.fail(rid, FailReason.ABORTED, "client left")
    pair.decode.await_event(Failed, rid)
    eventually(lambda: room in pair.prefill.transfer._control.rooms)
    pair.prefill.announce(rid, room, PROMPT)
    failed = pair.prefill.await_event(Failed, rid)
    assert failed.reason is FailReason.ABORTED
    assert "client left" in failed.detail


@pytest.mark.parametrize("stage", ["paired", "wanting", "reading"])
def test_decode_abort_ends_both_sides(pair: Pair, rid: str, room: int, stage: str) -> None:
    """An abort on decode fails prefill's room; granted pages come back by `Fenced`, others do not."""
    pair_up(pair, rid, room)
    if stage != "paired":
        pair.prefill.transfer.ready(rid, 0, SOURCE[:2], None)
        pair.decode.await_event(WantPages, rid)
    if stage == "reading":
        pair.decode.transfer.grant(rid, TARGET)
    pair.decode.transfer.fail(rid, FailReason.ABORTED, "deadline")
    assert pair.decode.await_event(Failed, rid).reason is FailReason.ABORTED
    assert pair.prefill.await_event(Failed, rid).detail == "decode-0: deadline"
    if stage == "reading":
        pair.decode.await_event(Fenced, rid)
    assert (Fenced in map(type, pair.decode.events_of(rid))) == (stage == "reading")


def test_a_grant_after_the_end_is_fenced(pair: Pair, rid: str, room: int) -> None:
    """Pages granted to a room that has just failed come back."""
    pair_up(pair, rid, room)
    pair.prefill.transfer.ready(rid, 0, SOURCE[:2], None)
    pair.decode.await_event(WantPages, rid)
    pair.prefill.transfer.fail(rid, FailReason.ABORTED, "operator")
    pair.decode.await_event(Failed, rid)
    pair.decode.transfer.grant(rid, TARGET)
    pair.decode.await_event(Fenced, rid)


@pytest.mark.parametrize("stage", ["paired", "reading", "computed"])
def test_prefill_abort_ends_both_sides(pair: Pair, rid: str, room: int, stage: str) -> None:
    """An abort on prefill frees its pages at once and fails decode's room with the reason."""
    pair_up(pair, rid, room)
    if stage != "paired":
        whole = stage == "computed"
        pair.prefill.transfer.ready(rid, 0, SOURCE if whole else SOURCE[:2], TOKEN if whole else None)
        pair.decode.await_event(WantPages, rid)
    pair.prefill.transfer.fail(rid, FailReason.ABORTED, "operator")
    assert pair.prefill.await_event(Failed, rid).reason is FailReason.ABORTED
    assert pair.decode.await_event(Failed, rid).detail == "prefill-0: operator"


def test_ended_rooms_leave_nothing_behind(pair: Pair, rid: str, room: int) -> None:
    """When ends are acknowledged, neither side remembers a failed room or repeats anything."""
    pair_up(pair, rid, room)
    pair.prefill.transfer.fail(rid, FailReason.ABORTED, "operator")
    pair.decode.await_event(Failed, rid)
    prefill, decode = pair.prefill.transfer._control, pair.decode.transfer._control
    eventually(lambda: room not in prefill.rooms and rid not in decode.rooms)
    eventually(lambda: all(len(peer.outbox) == 0 for peer in list(prefill.peers.known.values())))
    eventually(lambda: all(len(link.outbox) == 0 for link in list(decode.links.current.values())))


def test_a_corrupted_page_never_lands(pair: Pair, rid: str, room: int) -> None:
    """A byte that changes between checksum and READ fails the room on both sides and names the page."""
    pair_up(pair, rid, room)
    pair.prefill.fill(SOURCE, seed=room)
    pair.prefill.transfer.ready(rid, 0, SOURCE, TOKEN)
    pair.decode.await_event(WantPages, rid)
    pair.prefill.pool.bytes_view()[1, 1, 1, SOURCE[2], 100] ^= 4
    pair.decode.transfer.grant(rid, TARGET)
    failed = pair.decode.await_event(Failed, rid)
    assert failed.reason is FailReason.CHECKSUM_MISMATCH
    assert "page 2 of the prompt" in failed.detail
    assert pair.prefill.await_event(Failed, rid).reason is FailReason.CHECKSUM_MISMATCH
    pair.decode.await_event(Fenced, rid)


def test_a_room_number_is_used_once_at_a_time(pair: Pair, rid: str, room: int) -> None:
    """A second leg for a live room is refused on either side and leaves the first alone."""
    pair_up(pair, rid, room)
    pair.prefill.announce(rid + "b", room, PROMPT)
    pair.decode.open(rid + "b", room, PROMPT)
    assert "already in use" in pair.prefill.await_event(Failed, rid + "b").detail
    assert "already in use" in pair.decode.await_event(Failed, rid + "b").detail
    assert endings(pair.prefill, rid) == endings(pair.decode, rid) == []


def test_commit_and_abort_race_has_one_outcome(pair: Pair) -> None:
    """Whichever of COMMIT and prefill's abort comes first, both sides end alike, exactly once."""
    outcomes = set()
    for number in range(60):
        rid, room = f"race{number}", 100_000 + number
        pair_up(pair, rid, room)
        pair.prefill.transfer.ready(rid, 0, SOURCE, TOKEN)
        pair.decode.await_event(WantPages, rid)
        pair.decode.transfer.grant(rid, TARGET)
        for _ in range(number * 40):  # A growing delay, so that the abort meets every phase.
            pass
        if number % 2:
            pair.prefill.transfer.fail(rid, FailReason.ABORTED, "race")
        else:
            pair.decode.transfer.fail(rid, FailReason.ABORTED, "race")
        eventually(lambda rid=rid: endings(pair.prefill, rid) and endings(pair.decode, rid))
        ends = (endings(pair.prefill, rid), endings(pair.decode, rid))
        assert ends in (([Committed], [Landed]), ([Failed], [Failed])), rid
        outcomes.add(ends[1][0])
    assert Failed in outcomes


def test_decode_can_refuse_a_room(pair: Pair, rid: str, room: int) -> None:
    """A decode that does not admit a request makes prefill's leg fail at once."""
    pair.prefill.announce(rid, room, PROMPT)
    pair.decode.transfer.refuse(room, pair.registry.address, "queue full")
    failed = pair.prefill.await_event(Failed, rid)
    assert (failed.reason, failed.detail) == (FailReason.PEER_REFUSED, "decode-0: queue full")


def test_an_unknown_prefill_is_never_dialled(pair: Pair, rid: str, room: int) -> None:
    """A bootstrap address that is not configured fails at once and names the known ones."""
    record = pair.decode.record(rid, room)
    pair.decode.transfer.open(rid, room, "10.0.0.1:8998", PROMPT, 0, record)
    failed = pair.decode.await_event(Failed, rid)
    assert failed.reason is FailReason.UNREACHABLE
    assert pair.registry.address in failed.detail


def test_many_rooms_at_once_all_land(pair: Pair) -> None:
    """Sixteen rooms, opened together, all land with their own bytes."""
    rids = [f"many{number}" for number in range(16)]
    for number, rid in enumerate(rids):
        pair.prefill.announce(rid, 200_000 + number, PROMPT[:4])
        pair.decode.open(rid, 200_000 + number, PROMPT[:4])
    for number, rid in enumerate(rids):
        pair.prefill.await_event(Paired, rid)
        pair.prefill.fill([number], seed=number)
        pair.prefill.transfer.ready(rid, 0, [number], TOKEN)
    for number, rid in enumerate(rids):
        pair.decode.await_event(WantPages, rid)
        pair.decode.transfer.grant(rid, [63 - number])
    for number, rid in enumerate(rids):
        pair.decode.await_event(Landed, rid)
        assert pair.decode.holds([63 - number], seed=number)


def test_a_crashed_control_thread_loses_one_room_only(
    pair: Pair, rid: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that crashes the thread fails its own room; the thread restarts, the next room lands."""
    control = pair.prefill.transfer._control

    def crash(_: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("injected")

    monkeypatch.setattr(control, "_announce", crash)
    pair.prefill.announce(rid, room, PROMPT)
    assert "injected" in pair.prefill.await_event(Failed, rid).detail
    test_pages_land_byte_for_byte_in_chunks(pair, rid + "b", 300_000 + room)
    states = {state.name: state for state in pair.prefill.supervisor.states()}
    assert states["transfer-control"].restarts == 1
    assert pair.prefill.transfer.problems() == []
