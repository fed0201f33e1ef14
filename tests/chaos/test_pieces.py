"""A long run in pieces is the long run."""

from __future__ import annotations

import pytest

from tests.chaos.pieces import chance_of, piece


@pytest.mark.parametrize(
    ("asked", "numbers"), [(None, range(2)), ("100", range(100)), ("40-60", range(40, 60)), ("7-7", range(0))]
)
def test_a_piece_is_from_and_to_or_all_before(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, numbers: range
) -> None:
    """Two pieces that meet leave nothing out and do nothing twice."""
    monkeypatch.delenv("PIECE", raising=False)
    if asked is not None:
        monkeypatch.setenv("PIECE", asked)
    assert piece("PIECE", 2) == numbers


def test_a_case_has_the_same_chance_in_every_piece_and_another_by_another_seed() -> None:
    """So that one that failed can be run alone."""
    drawn = [chance_of(1, number).random() for number in (3, 4)]
    assert [chance_of(1, number).random() for number in (3, 4)] == drawn
    assert drawn[0] != drawn[1]
    assert chance_of(2, 3).random() != drawn[0]
