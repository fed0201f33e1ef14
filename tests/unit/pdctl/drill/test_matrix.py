"""What is still to run, and what the runs come to."""

from __future__ import annotations

import msgspec
import pytest

from pdctl.drill.matrix import Run, pending, rows_of
from pdctl.drill.rehearsal import PROVEN, REFUSED, Score

RIGHT = Score(
    drill="starved",
    expected="PD0402",
    named="PD0402",
    subject="decode-0",
    verdict="wedged",
    ruled_out=("PD0301",),
    causes_s=5.0,
    detect_s=4.0,
    snapshot_s=1.0,
    recover_s=20.0,
    end=PROVEN,
    lost=3,
    kept=None,
)
RUN = Run(
    at=1.0,
    code="a",
    commit=None,
    version="0",
    model="m",
    seed=1,
    load_average=0.5,
    took_s=60.0,
    score=RIGHT,
    drill="starved",
)


def run(drill: str, code: str = "a", **score: object) -> Run:
    """Return a run whose score differs from a right one."""
    return msgspec.structs.replace(RUN, drill=drill, code=code, score=msgspec.structs.replace(RIGHT, **score))


def test_rounds_are_played_one_after_the_other() -> None:
    """An early end has some of each drill."""
    assert pending([], "a", 2, ["x", "y"]) == ("x", "y", "x", "y")


def test_what_is_done_is_not_played_again() -> None:
    """Runs of the same sources count; those of others do not."""
    assert pending([run("x"), run("x"), run("y", code="b")], "a", 2, ["x", "y"]) == ("y", "y")


def test_more_runs_than_asked_for_leave_nothing_to_play() -> None:
    """Ten in the file, two asked for."""
    assert pending([run("x")] * 10, "a", 2, ["x"]) == ()


@pytest.mark.parametrize(
    ("score", "is_passed"),
    [
        ({}, True),
        ({"named": "PD0301"}, False),
        ({"named": None}, False),
        ({"ruled_out": ("PD0402",)}, False),
        ({"end": "not_verified: why"}, False),
        ({"end": REFUSED}, False),
        ({"expected": "PD0901", "named": "PD0901", "end": REFUSED}, True),
        ({"expected": "PD0901", "named": "PD0901", "end": PROVEN}, False),
    ],
)
def test_a_drill_passes_only_whole(score: dict[str, object], is_passed: bool) -> None:
    """Named right, the truth not ruled out, ended as it should: proven, or refused where nothing is wrong."""
    assert msgspec.structs.replace(RIGHT, **score).is_passed is is_passed


def test_a_row_counts_every_run() -> None:
    """Also one whose fault did not come about; seconds are medians of those that were measured."""
    runs = (
        run("starved", detect_s=2.0),
        run("starved", detect_s=9.0, recover_s=None, end="not_verified: slow"),
        run("starved", detect_s=4.0, named="PD0304"),
        msgspec.structs.replace(RUN, score=None, problem="it never hung", took_s=90.0),
    )
    (row,) = rows_of(runs)
    assert (row.runs, row.named, row.ended, row.ruled_out) == (4, 2, 2, 0)
    assert row.codes == ("PD0402", "PD0304")
    assert (row.detect_s, row.recover_s, row.whole_s) == (4.0, 20.0, 60.0)
    assert row.problems == ("not_verified: slow", "it never hung")
