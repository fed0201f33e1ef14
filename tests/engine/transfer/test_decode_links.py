"""Decode's links by hand: what is read before a link is given up, what makes it work, how long it is looked up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lone_decode import HEADS, LoneDecode
from transfer_sides import LAST_TOKEN, SOURCE

from engine.transfer.control.channel import Connection
from engine.transfer.decode.links import LinkPhase
from engine.transfer.interface import Failed, FailReason, Landed
from engine.transfer.protocol import frames


@pytest.fixture
def case() -> Iterator[LoneDecode]:
    made = LoneDecode()
    yield made
    made.end()


def wait_for_committed(case: LoneDecode) -> None:
    """Have a room ask for COMMITTED."""
    case.link_up()
    case.open("a", 1)
    sums = [bytes(4 * len(SOURCE) * len(HEADS))]
    case.hear(frames.Ready(1, 0, SOURCE, sums, last=True, first_token=LAST_TOKEN))
    assert case.channel.sent[-1] == frames.Commit(1)


def test_what_a_broken_connection_brought_is_read_first(case: LoneDecode) -> None:
    """COMMITTED, GOODBYE and the end of the connection, found together: the room has landed."""
    wait_for_committed(case)
    case.put(frames.Committed(1))
    case.put(frames.Goodbye("prefill stops"))
    case.channel.state = Connection.BROKEN
    case.control._receive()
    assert case.control.events.take_all() == [Landed("a", LAST_TOKEN)]
    assert case.link.phase is LinkPhase.DOWN


def test_a_connection_that_breaks_without_a_word_fails_its_rooms(case: LoneDecode) -> None:
    """Nothing was there to be read."""
    wait_for_committed(case)
    case.channel.state = Connection.BROKEN
    case.control._receive()
    (failed,) = case.control.events.take_all()
    assert isinstance(failed, Failed)
    assert failed.reason is FailReason.PEER_GONE
    assert case.channel.is_closed
