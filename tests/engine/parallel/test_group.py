"""Collectives between real processes over gloo."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.parallel.group import SingleRank
from tests.engine.parallel.rank_processes import RankProcesses


@pytest.fixture
def three(tmp_path: Path) -> Iterator[RankProcesses]:
    made = RankProcesses(3, tmp_path / "meeting")
    yield made
    made.end()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_every_rank_has_the_sum(three: RankProcesses, dtype: str) -> None:
    """In every dtype that a model may have."""
    assert three.call("all_reduce", [1.0, -2.5, 4.0], dtype) == [[3.0, -7.5, 12.0]] * 3


def test_rank_0_gets_columns_of_different_widths(three: RankProcesses) -> None:
    """In the order of the ranks; the others get none."""
    found = three.call("gather", 2, (3, 1, 2))
    assert found[0].tolist() == [[0.0, 0.0, 0.0, 1.0, 2.0, 2.0]] * 2
    assert [tuple(part.shape) for part in found[1:]] == [(2, 0)] * 2


def test_a_dead_rank_fails_its_neighbour_at_once_and_the_next_when_that_ends(three: RankProcesses) -> None:
    """kill -9 in the middle of a collective ends the ranks one after the other, long before the time limit."""
    three.call("all_reduce", [1.0], "float32")
    for rank in (0, 1):
        three.ask(rank, "all_reduce", [1.0], "float32")
    started = time.monotonic()
    three.kill(2)
    first = three.await_any((0, 1))
    with pytest.raises(AssertionError, match=r"RankLost.*another rank is gone"):
        three.answer(first)
    three.kill(first)
    with pytest.raises(AssertionError, match=r"RankLost.*another rank is gone"):
        three.answer(1 - first)
    assert time.monotonic() - started < 20, "the limit is 60 s"


def test_a_rank_that_does_not_come_is_told(tmp_path: Path) -> None:
    """Who waits for the others waits no longer than the limit."""
    pair = RankProcesses(2, tmp_path / "meeting", timeout_s=2.0)
    try:
        pair.kill(1)
        with pytest.raises(AssertionError, match="did not meet the others within 2 s"):
            pair.answer(0)
    finally:
        pair.end()


def test_a_group_of_one_gives_back_what_it_gets() -> None:
    """The same tensor, not a copy."""
    part = torch.ones(2, 3)
    assert SingleRank().all_reduce(part) is part
    assert SingleRank().gather_columns(part, (3,)) is part
