"""Who gets a prefill's one canary page, and when: both sides alone, with a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from engine.kvcache.pool import KVPool
from engine.transfer.control import canary
from engine.transfer.data.rank_link import RankHub
from engine.transfer.data.read_orders import Order
from engine.transfer.data.source_orders import FillCanary, SourceOrder, SourceReport
from engine.transfer.decode.canary import CanaryReader
from engine.transfer.decode.links import Lane, Link, LinkPhase
from engine.transfer.prefill.canary import CanarySource
from engine.transfer.prefill.rooms import DecodePeer
from engine.transfer.protocol.clocks import PeerPulse
from engine.transfer.protocol.contract import pools_of
from engine.transfer.protocol.frames import Canary, CanaryRead, CanaryReady, Frame, Hello
from engine.transfer.protocol.head_runs import head_runs
from tests.engine.clock import ManualClock
from tests.engine.transfer.transfer_sides import CANARY_PAGE, LAYOUT

ONE, OTHER = b"1" * canary.NONCE_BYTES, b"2" * canary.NONCE_BYTES


@dataclass
class TwoRanks:
    """In place of the sockets to the ranks: keeps what they are told."""

    told: list[SourceOrder] = field(default_factory=list)
    size: int = 2

    def tell_all(self, order: SourceOrder) -> None:
        self.told.append(order)


class Source:
    """Prefill's side with two peers."""

    def __init__(self) -> None:
        self.clock, self.ranks = ManualClock(), TwoRanks()
        self.canary = CanarySource(CANARY_PAGE, self.clock, cast(RankHub[SourceOrder, SourceReport], self.ranks))
        self.a, self.b = (
            DecodePeer(name.encode(), name, Hello(name, "decode", {}, []), PeerPulse(0.0)) for name in ("a", "b")
        )

    def fill(self, nonce: bytes) -> tuple[DecodePeer, CanaryReady] | None:
        assert self.canary.filled(0, nonce) is None
        return self.canary.filled(1, nonce)

    def begin(self) -> None:
        """Peer a gets the page and reads it."""
        self.canary.asked(self.a, Canary(ONE))
        assert self.fill(ONE) == (self.a, CanaryReady(ONE, CANARY_PAGE))
        self.canary.asked(self.b, Canary(OTHER))
        assert self.ranks.told == [FillCanary(CANARY_PAGE, ONE)]


def test_who_asks_again_gets_the_page_after_the_other() -> None:
    """The first CANARY of b comes while a reads; its next one after a has told what it found."""
    case = Source()
    case.begin()
    case.canary.told(case.a, CanaryRead(ONE, True, 0.001, ""))
    assert case.canary.asked(case.b, Canary(OTHER)) is None
    assert case.fill(OTHER) == (case.b, CanaryReady(OTHER, CANARY_PAGE))


def test_a_repeated_canary_fills_nothing_anew() -> None:
    """Before the page is filled it changes nothing; afterwards it is answered, the first answer may be lost."""
    case = Source()
    assert case.canary.asked(case.a, Canary(ONE)) is None
    assert case.canary.asked(case.a, Canary(ONE)) is None
    assert case.fill(ONE) is not None
    assert case.canary.asked(case.a, Canary(ONE)) == CanaryReady(ONE, CANARY_PAGE)
    assert case.ranks.told == [FillCanary(CANARY_PAGE, ONE)]


def test_only_the_holder_gives_the_page_back() -> None:
    """What b tells of, or that it is lost, takes no page from a."""
    case = Source()
    case.begin()
    case.canary.told(case.b, CanaryRead(OTHER, False, 0.0, "no answer"))
    case.canary.lost(case.b)
    case.canary.asked(case.b, Canary(OTHER))
    assert case.ranks.told == [FillCanary(CANARY_PAGE, ONE)]


def test_a_lost_holder_gives_the_page_back() -> None:
    """At once, not when its time is up."""
    case = Source()
    case.begin()
    case.canary.lost(case.a)
    case.canary.asked(case.b, Canary(OTHER))
    assert case.ranks.told[-1] == FillCanary(CANARY_PAGE, OTHER)


class Reader:
    """Decode's side with one link, due for a canary."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[Frame] = []
        self.orders: list[tuple[int, Order]] = []
        pool = KVPool(LAYOUT)
        heads = [range(LAYOUT.kv_heads)]
        self.link = Link("127.0.0.1:1", 1, PeerPulse(0.0), phase=LinkPhase.UP, ranks=pools_of(LAYOUT, heads))
        self.link.lanes = (Lane("lane", head_runs(heads, heads)[0]),)
        self.canary = CanaryReader(
            pool, CANARY_PAGE, self.clock, lambda _, frame: self.sent.append(frame),
            lambda rank, order: self.orders.append((rank, order)), every_s=60.0,
        )  # fmt: skip

    def run(self, seconds: float) -> None:
        """Tick ten times a second."""
        for _ in range(round(seconds * 10)):
            self.canary.tick([self.link], self.clock.monotonic())
            self.clock.advance(0.1)


def test_decode_asks_until_the_page_is_there() -> None:
    """Each second with the same nonce, for longer than another decode can have the page; then no more."""
    case = Reader()
    case.run(canary.LIMIT_S + 1)
    asked = {frame.nonce for frame in case.sent if isinstance(frame, Canary)}
    assert (len(case.sent), len(asked)) == (6, 1)
    case.canary.ready(case.link, CanaryReady(asked.pop(), CANARY_PAGE))
    assert len(case.orders) == 1
    case.run(canary.LIMIT_S - 0.5)
    assert len(case.sent) == 6
    case.run(1)
    assert isinstance(case.sent[-1], CanaryRead)
    assert "the READ does not end" in case.sent[-1].detail


def test_decode_gives_up_a_prefill_that_does_not_answer() -> None:
    """And says so once."""
    case = Reader()
    case.run(canary.ANSWER_LIMIT_S + 2)
    told = [frame for frame in case.sent if isinstance(frame, CanaryRead)]
    assert [frame.detail for frame in told] == ["no answer to CANARY (7 s)"]
    assert case.link.canary.detail == told[0].detail


def test_a_lost_link_holds_up_no_other_canary() -> None:
    """Who is not there is not asked, and is not said to give no answer."""
    case = Reader()
    case.run(1)
    case.link.phase = LinkPhase.DOWN
    case.run(1)
    assert case.link.canary.ended_at is None
    other = Link("127.0.0.1:2", 2, PeerPulse(0.0), phase=LinkPhase.UP)
    case.canary.tick([case.link, other], case.clock.monotonic())
    assert [type(frame) for frame in case.sent] == [Canary, Canary]
