"""Sides of several ranks, each in a process of its own: real NIXL between all of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from engine.config import EngineConfig, Role
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.interface import Committed, Failed, FailReason, Fenced, Landed, Paired, Summed, WantPages
from tests.engine.transfer.remote_side import RemoteRank
from tests.engine.transfer.transfer_sides import (
    PROMPT,
    SOURCE,
    TARGET,
    TOKEN,
    Decode,
    Prefill,
    Registry,
    config_of,
    eventually,
)

ONE = (range(3),)
TWO = (range(2), range(2, 3))
THREE = (range(1), range(1, 2), range(2, 3))
FOUR = (range(1), range(1), range(1, 2), range(2, 3))
_rooms = count(1)


class Ranked:
    """A prefill and a decode of several ranks; rank 0 of each is in this process, the others are not."""

    def __init__(self, prefill: Sequence[range], decode: Sequence[range], folder: Path) -> None:
        self.registry = Registry()
        self.others: dict[str, list[RemoteRank]] = {"prefill": [], "decode": []}
        config = config_of(Role.PREFILL, "prefill-0")
        ranks = self._others(config, prefill, folder)
        self.prefill = Prefill(config=config, ranks=ranks)
        self.registry.publish(self.prefill)
        config = config_of(Role.DECODE, "decode-0", peers=(self.registry.address,))
        ranks = self._others(config, decode, folder)
        self.decode = Decode(config=config, ranks=ranks)

    def _others(self, config: EngineConfig, heads: Sequence[range], folder: Path) -> InstanceRanks:
        """Start the ranks other than 0 of a side."""
        run_dir = folder / config.role
        run_dir.mkdir()
        ranks = InstanceRanks(tuple(heads), str(run_dir))
        self.others[config.role] = [RemoteRank(config, ranks, rank) for rank in range(1, ranks.size)]
        return ranks

    def begin(self, rid: str) -> int:
        """Open a room and make its first chunk ready; returns its number, which is also the seed of its bytes."""
        room = next(_rooms)
        self.prefill.announce(rid, room, PROMPT)
        self.decode.open(rid, room, PROMPT)
        self.prefill.await_event(Paired, rid)
        self.fill(SOURCE, room)
        self.prefill.transfer.ready(rid, 0, SOURCE[:2], None)
        self.decode.await_event(WantPages, rid)
        return room

    def finish(self, rid: str) -> None:
        """Grant the pages, make the last chunk ready, and wait until it has landed on both sides."""
        self.decode.transfer.grant(rid, TARGET)
        self.prefill.transfer.ready(rid, 2, SOURCE[2:], TOKEN)
        self.decode.await_event(Landed, rid)
        self.prefill.await_event(Committed, rid)

    def fill(self, pages: list[int], seed: int) -> None:
        self.prefill.fill(pages, seed)
        for other in self.others["prefill"]:
            other.call("fill", pages, seed)

    def decode_holds(self, pages: list[int], seed: int) -> list[bool]:
        """Say for every rank of decode whether its heads of these pages are what was computed."""
        return [self.decode.holds(pages, seed), *(other.call("holds", pages, seed) for other in self.others["decode"])]

    def stop(self) -> None:
        self.decode.stop()
        self.prefill.stop()
        for other in self.others["prefill"] + self.others["decode"]:
            other.end()
        self.registry.stop()


@pytest.fixture(params=["default", "tcp"])
def transports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tcp":
        monkeypatch.setenv("UCX_TLS", "tcp")
    return str(request.param)


@pytest.fixture
def sides(request: pytest.FixtureRequest, transports: str, tmp_path: Path) -> Iterator[Ranked]:
    made = Ranked(*request.param, tmp_path)
    yield made
    made.stop()


PAIRS = {
    "1 to 2": (ONE, TWO),
    "2 to 1": (TWO, ONE),
    "2 to 2": (TWO, TWO),
    "2 to 3": (TWO, THREE),
    "4, one head twice, to 2": (FOUR, TWO),
    "2 to 4, one head twice": (TWO, FOUR),
}


@pytest.mark.parametrize("sides", PAIRS.values(), ids=PAIRS.keys(), indirect=True)
def test_every_rank_of_decode_gets_its_heads(sides: Ranked) -> None:
    """In chunks, each verified by its own checksums, and the canary goes the same ways."""
    for rid in ("a", "b"):
        room = sides.begin(rid)
        sides.finish(rid)
        assert sides.decode_holds(TARGET, room) == [True] * len(sides.decode_holds(TARGET, room))
    eventually(lambda: [row.state for row in sides.decode.transfer.peer_transfers()] == ["ok"])
    assert sides.decode.transfer.problems() == sides.prefill.transfer.problems() == []


@pytest.mark.parametrize("sides", [(TWO, TWO)], ids=["2 to 2"], indirect=True)
def test_wrong_bytes_on_one_rank_fail_the_room(sides: Ranked) -> None:
    """A bit that flips on rank 1 of prefill after it was summed: no rank of decode may use the page."""
    sides.begin("a")
    eventually(lambda: sides.decode.transfer._control.rooms["a"].waiting)
    sides.others["prefill"][0].call("flip", SOURCE[1])
    sides.decode.transfer.grant("a", TARGET)
    failed = sides.decode.await_event(Failed, "a")
    assert failed.reason is FailReason.CHECKSUM_MISMATCH
    assert "page 1 of the prompt" in failed.detail
    sides.decode.await_event(Fenced, "a")
    assert sides.prefill.await_event(Failed, "a").reason is FailReason.CHECKSUM_MISMATCH
    room = sides.begin("b")
    sides.finish("b")
    assert sides.decode_holds(TARGET, room) == [True, True]


def summed(sides: Ranked, rid: str) -> dict[int, bytes]:
    """Have the target pages summed under a new name; return the sums by rank."""
    sides.decode.transfer.sum_pages(rid, TARGET)
    eventually(lambda: len(sides.decode.events_of(rid)) == 2)
    return {event.rank: event.sums for event in sides.decode.events_of(rid) if isinstance(event, Summed)}


@pytest.mark.parametrize("transports", ["default"], indirect=True)
@pytest.mark.parametrize("sides", [(ONE, TWO)], ids=["1 to 2"], indirect=True)
def test_every_rank_of_decode_sums_its_own_heads(sides: Ranked) -> None:
    """What changes on rank 1 after it has landed shows in the sums of rank 1 alone."""
    sides.begin("a")
    sides.finish("a")
    landed = summed(sides, "first")
    assert [len(landed[rank]) for rank in (0, 1)] == [4 * len(TARGET) * 2, 4 * len(TARGET) * 1]
    assert summed(sides, "unchanged") == landed
    sides.others["decode"][0].call("flip", TARGET[2])
    changed = summed(sides, "changed")
    assert changed[0] == landed[0]
    assert changed[1] != landed[1]


def restarts(prefill: Prefill) -> float:
    """Return the metric that counts lost data planes of all ranks."""
    samples = {sample.name: sample.value for sample in prefill.transfer.samples()}
    return samples["transfer_source_restarts_total"]


@pytest.mark.parametrize("sides", [(TWO, ONE)], ids=["2 to 1"], indirect=True)
def test_a_room_outlives_the_data_plane_of_one_rank(sides: Ranked) -> None:
    """kill -9 of rank 1's data plane: health says so, the next process is found, the room lands through it."""
    other = sides.others["prefill"][0]
    room = sides.begin("a")
    victim = other.call("plane_pid")
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: other.call("plane_pid") not in (0, victim))
    (link,) = sides.decode.transfer._control.links.current.values()
    eventually(lambda: link.ranks[1].source == 2 and link.is_working)
    sides.finish("a")
    assert sides.decode_holds(TARGET, room) == [True]
    eventually(lambda: restarts(sides.prefill) == 1)


@pytest.mark.parametrize("transports", ["tcp"], indirect=True)
@pytest.mark.parametrize("sides", [(TWO, TWO)], ids=["2 to 2"], indirect=True)
def test_a_fence_waits_for_every_rank(sides: Ranked) -> None:
    """A READ that hangs on rank 1 alone keeps the pages of all ranks, until its agent is dropped."""
    sides.begin("before")
    sides.finish("before")
    sides.begin("a")
    plane = sides.others["prefill"][0].call("plane_pid")
    os.kill(plane, signal.SIGSTOP)
    try:
        sides.decode.transfer.grant("a", TARGET)
        room = sides.decode.transfer._control.rooms["a"]
        eventually(lambda: room.reads == 1)
        sides.decode.transfer.fail("a", FailReason.ABORTED, "client left")
        sides.decode.await_event(Failed, "a")
        assert not any(isinstance(event, Fenced) for event in sides.decode.events_of("a"))
        sides.decode.await_event(Fenced, "a", timeout_s=10)
        eventually(lambda: sides.decode.transfer._control.hub.losses() == 1)
        assert sides.decode.transfer._worker.agents_dropped == 0, "rank 0's READ was done: its agent stays"
        sides.others["decode"][0].call("fill", TARGET, 77)
    finally:
        os.kill(plane, signal.SIGCONT)
    again = sides.begin("b")
    assert sides.others["decode"][0].call("holds", TARGET, 77), "bytes came after the fence"
    sides.finish("b")
    assert sides.decode_holds(TARGET, again) == [True, True]


def test_ranks_without_a_head_that_decode_needs_are_refused_on_both_sides(tmp_path: Path) -> None:
    """As many heads in all, but not the same ones: both sides name the field and the heads."""
    made = Ranked((range(2), range(3, 4)), TWO, tmp_path)
    try:
        why = "kv.ranks: decode needs the KV heads [2], prefill's ranks hold 0-1 | 3"
        eventually(lambda: made.decode.transfer.refused_peers() == {"prefill-0": why})
        eventually(lambda: made.prefill.transfer.refused_peers() == {"decode-0": why})
        made.prefill.announce("a", 1, PROMPT)
        made.decode.open("a", 1, PROMPT)
        assert made.decode.await_event(Failed, "a").reason is FailReason.CONTRACT_MISMATCH
        assert made.prefill.await_event(Failed, "a").reason is FailReason.CONTRACT_MISMATCH
    finally:
        made.stop()
