"""Stage times out of two engines' records."""

from __future__ import annotations

import pytest

from pdctl.probe.report import Stage
from pdctl.probe.rooms import RoomRecord, SeenLeg, clock_offset, describe_live, stage_times


def leg(role: str, at: dict[str, float], **more: object) -> SeenLeg:
    is_live = bool(more.pop("is_live", False))
    fields = {"request_id": "x", "role": role, "state": "closed", "at": at} | more
    record = RoomRecord(**fields)  # type: ignore[arg-type]
    return SeenLeg(instance=f"{role}-0", record=record, is_live=is_live, age_s=2.5)


def test_stages_are_ordered_by_time_not_by_engine() -> None:
    """Stages of both legs are one line of time; the time of each is counted from the one before."""
    legs = [
        leg("decode", {"received": 100.001, "landed": 100.050}),
        leg("prefill", {"received": 100.004, "paired": 100.006, "computed": 100.040}),
    ]
    stages = stage_times(legs, 100.0, by_router=True)
    assert [(item.stage, item.at_ms, item.took_ms) for item in stages] == [
        (Stage.ROUTER_ACCEPTED, 1.0, 1.0),
        (Stage.PREFILL_QUEUED, 4.0, 3.0),
        (Stage.PAIRED, 6.0, 2.0),
        (Stage.PREFILL_COMPUTED, 40.0, 34.0),
        (Stage.KV_LANDED, 50.0, 10.0),
    ]


def test_stages_at_one_instant_keep_the_order_of_life() -> None:
    """Equal stamps are ordered as a request lives."""
    stages = stage_times([leg("decode", {"landed": 1.0, "first_token": 1.0, "last_token": 1.0})], 1.0, by_router=False)
    assert [item.stage for item in stages] == [Stage.KV_LANDED, Stage.FIRST_TOKEN, Stage.LAST_TOKEN]


def test_prefills_own_landed_is_not_decodes() -> None:
    """Prefill stamps COMMITTED as landed too; KV has landed when decode says so."""
    stages = stage_times([leg("prefill", {"received": 1.0, "landed": 2.0})], 1.0, by_router=False)
    assert [item.stage for item in stages] == [Stage.PREFILL_QUEUED]


@pytest.mark.parametrize(
    ("theirs", "offset_s"),
    [(100.0, 0.0), (100.05, 0.0), (100.1, 0.0), (103.05, 3.0), (97.05, -3.0)],
)
def test_clock_offset_ignores_what_the_exchange_itself_explains(theirs: float, offset_s: float) -> None:
    """An answer stamped within the exchange shows no offset; beyond it, the middle of the exchange counts."""
    assert clock_offset(theirs, asked_at=100.0, answered_at=100.1) == pytest.approx(offset_s)


def test_live_and_failed_rooms_are_described() -> None:
    """A live room is shown with state and age, a failed one with its reason, a closed one not."""
    legs = [
        leg("prefill", {}, is_live=True, state="paired"),
        leg("decode", {}, state="failed", reason="peer_silent"),
        leg("decode", {}),
    ]
    assert describe_live(legs) == (
        "prefill-0: room paired for 2.5 s, not ended",
        "decode-0: room failed (peer_silent)",
    )


def test_no_stage_is_before_the_sending() -> None:
    """A clock that is off by some milliseconds, or was set meanwhile, gives no negative times."""
    legs = [leg("prefill", {"received": 99.995, "computed": 99.998}), leg("decode", {"landed": 100.002})]
    stages = stage_times(legs, 100.0, by_router=True)
    assert [(item.stage, item.at_ms, item.took_ms) for item in stages] == [
        (Stage.ROUTER_ACCEPTED, 0.0, 0.0),
        (Stage.PREFILL_QUEUED, 0.0, 0.0),
        (Stage.PREFILL_COMPUTED, 0.0, 0.0),
        (Stage.KV_LANDED, 2.0, 2.0),
    ]
