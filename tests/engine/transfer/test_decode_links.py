"""Decode's links by hand: what is read before a link is given up, what makes it work, how long it is looked up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.transfer.control.channel import Connection
from engine.transfer.control.registry import LOOKUP_LIMIT_S, Resolved
from engine.transfer.data.read_orders import ClosePeer, OpenPeer, PeerOpened, PeerUnusable
from engine.transfer.decode.link_keeper import RETRY_S
from engine.transfer.decode.links import LinkPhase
from engine.transfer.interface import Failed, FailReason, Landed
from engine.transfer.protocol import frames
from tests.engine.transfer.lone_decode import HEADS, PEER, LoneDecode
from tests.engine.transfer.transfer_sides import LAST_TOKEN, SOURCE


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


def opens(case: LoneDecode) -> list[str]:
    """Return the lanes that the read thread was told to make agents for, since the last call."""
    found = [order.lane for order in case.orders if isinstance(order, OpenPeer)]
    case.orders.clear()
    return found


def test_a_lane_without_an_agent_is_tried_once_a_heartbeat(case: LoneDecode, caplog: pytest.LogCaptureFixture) -> None:
    """NIXL that always fails here is not asked without a pause, is logged once, and is never called working."""
    case.link_up()
    (lane,) = opens(case)
    for _ in range(3):
        assert not case.link.is_working
        case.channel.sent.clear()
        case.control._obey(PeerUnusable(lane, "no backend"))
        assert (case.channel.sent, opens(case)) == ([], [])
        case.hear(frames.Heartbeat(1, 0.0, 1))
        assert [type(frame) for frame in case.channel.sent] == [frames.Hello]
        case.hear(case.hello(1))
        assert opens(case) == [lane]
        assert (case.link.is_working, case.link.error) == (False, "no backend")
    assert [record.getMessage() for record in caplog.records if "no backend" in record.getMessage()] == [
        f"no NIXL agent to read from prefill-0 over lane {lane}; trying on: no backend"
    ]


def test_a_lane_works_when_its_agent_was_made(case: LoneDecode) -> None:
    """The greeting alone proves nothing; the agent does, also after one that could not be made."""
    case.link_up()
    (lane,) = opens(case)
    assert not case.link.is_working
    case.control._obey(PeerOpened(lane))
    assert case.link.is_working
    case.control._obey(PeerUnusable(lane, "no backend"))
    assert not case.link.is_working
    case.control._obey(PeerOpened(lane))
    assert (case.link.is_working, case.link.error) == (True, "")


def test_why_a_link_was_lost_outlives_what_its_agents_tell_late(case: LoneDecode) -> None:
    """The report of an agent that comes after the end of its link changes nothing of it."""
    case.link_up()
    (lane,) = opens(case)
    case.hear(frames.Goodbye("prefill stops"))
    assert case.orders == [ClosePeer(lane)]
    for report in (PeerUnusable(lane, "no backend"), PeerOpened(lane)):
        case.control._obey(report)
        assert (case.link.is_working, case.link.error) == (False, "prefill-0 left: prefill stops")


def pass_time(case: LoneDecode, seconds: float) -> None:
    """Have a tick come after a time in which this process ran."""
    case.clock.advance(seconds)
    case.control._tick(case.clock.monotonic())


def test_a_room_does_not_outwait_a_lookup(case: LoneDecode) -> None:
    """Its pairing clock ends it, and says that it is not its prefill leg that is missing."""
    case.open("a", 1)
    pass_time(case, case.config.pairing_timeout_s)
    detail = f"no link to {PEER} within 10 s: looking_up"
    assert case.control.events.take_all() == [Failed("a", FailReason.PAIRING_TIMEOUT, detail)]


def test_a_lookup_that_does_not_end_is_given_up_and_asked_again(case: LoneDecode) -> None:
    """What it answers after all is not taken for the answer of the next one."""
    pass_time(case, LOOKUP_LIMIT_S - 1)
    assert case.link.phase is LinkPhase.LOOKING_UP
    pass_time(case, 1.1)
    assert (case.link.phase, case.link.error) == (LinkPhase.DOWN, "its lookup has not ended in 35 s")
    pass_time(case, RETRY_S)
    first, second = case.asked
    case.control._obey(Resolved(PEER, first, None, "connection refused"))
    assert case.link.phase is LinkPhase.LOOKING_UP
    case.control._obey(Resolved(PEER, second, None, "connection refused"))
    assert (case.link.phase, case.link.error) == (LinkPhase.DOWN, "connection refused")
