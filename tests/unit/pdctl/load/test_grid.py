"""Rates and their intervals, and which cells there are."""

from __future__ import annotations

import pytest

from pdctl.load.grid import cell_of, profiles, wilson
from pdctl.load.profile import Profile, Range
from pdctl.load.tally import Figures, percentile


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        # Worked out by hand from Wilson's formula; the first two stand in many text books.
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (1, 100, 0.0018, 0.0545),
        (100, 100, 0.9630, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_of_a_rate(hits: int, trials: int, low: float, high: float) -> None:
    """95 %, also where nothing or everything was wrong, and where nothing was tried."""
    assert wilson(hits, trials) == pytest.approx((low, high), abs=1e-4)


def test_the_cells_differ_in_one_thing_each() -> None:
    """Alone and 60 at once, one turn and several, with and without clients that leave."""
    cells = profiles(Profile(sessions=60, turns=Range(2, 2), kill_after_s=5.0))
    kinds = {(item.sessions, item.turns.high > 1, item.abort_rate > 0) for item in cells}
    assert kinds == {(n, multi, aborts) for n in (1, 60) for multi in (False, True) for aborts in (False, True)}
    assert not any(item.kill_after_s for item in cells)


def test_a_crowd_is_no_larger_than_asked_for() -> None:
    """A target that takes only so many has a smaller crowd; alone in any case."""
    assert {item.sessions for item in profiles(Profile(sessions=16))} == {1, 16}


def test_unchecked_answers_are_no_trials() -> None:
    """A canary that could not be judged counts neither as right nor as wrong."""
    figures = Figures(
        elapsed_s=1.0,
        in_flight=0,
        requests=9,
        outcomes={"ok": 7, "left": 1, "refused": 1},
        tokens=0,
        tokens_per_s=0.0,
        ttft_p50_s=None,
        ttft_p95_s=None,
        took_p50_s=None,
        canaries={"right": 3, "wrong": 1, "unchecked": 2},
        markup_faults=1,
        answers_with_calls=2,
        examples=(),
    )
    cell = cell_of(Profile(), figures)
    assert (cell.checked, cell.wrong, cell.failed, cell.requests) == (6, 2, 1, 9)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 3), (0.95, 5), (0.2, 1), (1.0, 5)])
def test_percentiles_are_values_that_were_measured(share: float, expected: float) -> None:
    """The smallest value that so many do not exceed."""
    assert percentile([5, 1, 3, 2, 4], share) == expected


def test_nothing_measured_has_no_percentile() -> None:
    """None, not zero."""
    assert percentile([], 0.5) is None
