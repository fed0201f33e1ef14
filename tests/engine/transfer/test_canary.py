"""The canary READ between two real sides, and what it says when the data plane is broken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from engine.observe.records import PeerTransfer
from engine.transfer.control import canary
from engine.transfer.data import canary_page
from engine.transfer.interface import Landed, Paired, WantPages
from tests.engine.transfer.pairs import Pair, make_pair
from tests.engine.transfer.transfer_sides import CANARY_PAGE, TOKEN, eventually


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries are given up after 0.5 s."""
    monkeypatch.setattr(canary, "LIMIT_S", 0.5)


@pytest.fixture
def pair(quick: None) -> Iterator[Pair]:
    """Canaries five times a second."""
    made = make_pair(canary_every_s=0.2)
    yield made
    made.stop()


def rows(pair: Pair) -> list[PeerTransfer]:
    return pair.decode.transfer.peer_transfers() + pair.prefill.transfer.peer_transfers()


def states(pair: Pair) -> list[str]:
    return [row.state for row in rows(pair)]


def test_both_sides_know_that_a_page_travelled(pair: Pair) -> None:
    """Decode measures the READ and tells prefill; each names the other by its incarnation."""
    eventually(lambda: states(pair) == ["ok", "ok"])
    decode, prefill = rows(pair)
    assert decode.took_ms > 0
    assert (decode.peer, decode.incarnation) == ("prefill-0", pair.prefill.config.incarnation)
    assert (prefill.peer, prefill.incarnation) == ("decode-0", pair.decode.config.incarnation)


def test_every_canary_has_fresh_bytes(pair: Pair) -> None:
    """A page that held the right bytes once says nothing of now."""

    def page() -> bytes:
        return bytes(pair.decode.pool.bytes_view()[:, :, :, CANARY_PAGE].tobytes())

    eventually(lambda: states(pair) == ["ok", "ok"])
    first = page()
    eventually(lambda: page() != first)


def test_a_page_with_other_bytes_fails_on_both_sides(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that is not what prefill writes (a stale mapping) is found."""
    fill = canary_page.fill
    monkeypatch.setattr(canary_page, "fill", lambda pages, page, nonce: fill(pages, page, nonce[::-1]))
    eventually(lambda: states(pair) == ["failing", "failing"] and "other bytes" in rows(pair)[0].detail)
    monkeypatch.setattr(canary_page, "fill", fill)
    eventually(lambda: states(pair) == ["ok", "ok"])


def test_a_hanging_data_plane_is_told_from_a_live_control_channel(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats go on while READs do not: the canary fails, and is ok again when READs end."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    made = make_pair(canary_every_s=0.2)
    try:
        eventually(lambda: states(made) == ["ok", "ok"])
        plane = made.prefill.plane_pid()
        os.kill(plane, signal.SIGSTOP)
        eventually(lambda: states(made) == ["failing", "failing"])
        assert "READ does not end" in rows(made)[0].detail
        assert made.decode.transfer.problems() == []
        os.kill(plane, signal.SIGCONT)
        eventually(lambda: states(made) == ["ok", "ok"])
    finally:
        made.stop()


def test_without_canaries_nothing_is_said_of_the_data_plane(quick: None) -> None:
    """Interval 0: rooms land, and both sides go on waiting for a canary."""
    made = make_pair(canary_every_s=0)
    try:
        made.prefill.announce("a", 1, [1, 2, 3])
        made.decode.open("a", 1, [1, 2, 3])
        made.prefill.await_event(Paired, "a")
        made.prefill.transfer.ready("a", 0, [0], TOKEN)
        made.decode.await_event(WantPages, "a")
        made.decode.transfer.grant("a", [0])
        made.decode.await_event(Landed, "a")
        assert states(made) == ["waiting", "waiting"]
    finally:
        made.stop()
