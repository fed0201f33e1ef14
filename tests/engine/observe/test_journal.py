"""The journal: what lives, what ended, and for how long the ended stay."""

from __future__ import annotations

from engine.observe.journal import Journal
from engine.observe.records import RoomRecord, Stage
from tests.engine.clock import ManualClock


def record(rid: str) -> RoomRecord:
    """Return a fresh record."""
    return RoomRecord(request_id=rid, rid=rid, room=7, role="decode", state="announced")


def test_an_ended_leg_moves_from_live_to_recent_with_its_reason() -> None:
    """State and reason of the end stay readable."""
    journal = Journal(ManualClock())
    leg = journal.open(record("a"), received_at=5.0)
    journal.close(leg, "failed", "peer_gone")
    assert journal.live() == []
    assert [(r.rid, r.state, r.reason) for r in journal.recent()] == [("a", "failed", "peer_gone")]


def test_the_first_stamp_of_a_stage_counts() -> None:
    """A chunked read marks READING once, at its first chunk."""
    clock = ManualClock()
    journal = Journal(clock)
    leg = journal.open(record("a"), received_at=5.0)
    journal.mark(leg, Stage.READING)
    clock.advance(3)
    journal.mark(leg, Stage.READING)
    assert leg.at == {Stage.RECEIVED: 5.0, Stage.READING: 1_000_000.0}


def test_ended_legs_are_forgotten_after_a_minute() -> None:
    """61 s after its end a leg is gone, 60 s after it is not."""
    clock = ManualClock()
    journal = Journal(clock)
    journal.close(journal.open(record("a"), 5.0), "closed")
    clock.advance(60)
    assert len(journal.recent()) == 1
    clock.advance(1)
    assert journal.recent() == []
