"""Which tokens count as the model's own choice."""

from __future__ import annotations

import pytest

from pdctl.probe.report import Output
from pdctl.probe.scoring import judge

Row = tuple[float | None, int, str | None]


def scored(*gaps: float, first_id: int = 5) -> tuple[list[Row], list[list[tuple[float, int, str | None]]], list[int]]:
    """Return tokens that lie `gaps` below the best one at their position, with the best ones and the ids."""
    ids = [first_id + index for index in range(len(gaps))]
    rows: list[Row] = [(-2.0 - gap, token, None) for gap, token in zip(gaps, ids, strict=True)]
    return rows, [[(-2.0, 9, None)] for _ in gaps], ids


def test_best_tokens_are_same() -> None:
    """Tokens that are the best ones are right."""
    assert judge(*scored(0.0, 0.0)).output is Output.SAME


@pytest.mark.parametrize(("gap", "output"), [(0.25, Output.SAME), (0.2500001, Output.GARBLED), (9.0, Output.GARBLED)])
def test_tolerance(gap: float, output: Output) -> None:
    """A quarter of a nat is allowed, and no more."""
    assert judge(*scored(0.0, gap, 0.0)).output is output


def test_position_of_the_first_wrong_token_is_said() -> None:
    """The report counts the wrong tokens and says where they begin."""
    why = judge(*scored(0.0, 3.0, 4.0)).why
    assert "2 of 3" in why
    assert "position 2" in why


def test_not_a_number_is_garbled() -> None:
    """A score that is not a number passes no comparison, and must not pass."""
    assert judge(*scored(float("nan"))).output is Output.GARBLED


def test_answer_is_aligned_from_the_end() -> None:
    """An entry for the last prompt token before the answer changes nothing."""
    rows, best, ids = scored(0.0, 0.1)
    assert judge([(None, 77, None), *rows], [None, *best], ids).output is Output.SAME


def test_other_tokens_than_answered_are_unchecked() -> None:
    """A score of other tokens says nothing about the answer."""
    rows, best, _ = scored(0.0, 0.0)
    assert judge(rows, best, [5, 99]).output is Output.UNCHECKED


def test_too_few_positions_are_unchecked() -> None:
    """An answer that was not scored whole is unchecked, not right."""
    rows, best, ids = scored(0.0, 0.0)
    assert judge(rows[1:], best[1:], ids).output is Output.UNCHECKED


def test_missing_score_is_unchecked() -> None:
    """A null in the answer's positions is no score."""
    rows, best, ids = scored(0.0)
    assert judge([(None, ids[0], None)], best, ids).output is Output.UNCHECKED
    assert judge(rows, [None], ids).output is Output.UNCHECKED
