"""The fault matrix: every drill, again and again, in a file that several sittings fill; one line a run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from pdctl.drill.catalogue import DRILLS
from pdctl.drill.rehearsal import Score


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a result file."""

    at: float
    """Unix time of its end."""
    code: str
    """Hash over the sources of engine and pdctl: runs of other sources are other figures."""
    commit: str | None
    version: str
    model: str
    seed: int
    load_average: float
    """Of the machine, over the minute before the end: a figure means little without."""
    took_s: float
    """All of it, with the start and the end of its deployment."""
    score: Score | None = None
    problem: str | None = None
    """Why there is no score: the fault did not come about."""
    drill: str

    @property
    def is_passed(self) -> bool:
        """Return whether everything was as it should be."""
        return self.score is not None and self.score.is_passed


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one drill. Seconds are medians."""

    drill: str
    expected: str
    runs: int
    named: int
    ruled_out: int
    ended: int
    """Proven, or refused where that is right."""
    codes: tuple[str, ...]
    """What was named, every one once."""
    detect_s: float | None
    snapshot_s: float | None
    recover_s: float | None
    lost: float | None
    whole_s: float | None
    """All of a run, with the start and the end of its deployment."""
    problems: tuple[str, ...]


def pending(runs: Iterable[Run], code: str, rounds: int, names: Sequence[str]) -> tuple[str, ...]:
    """Return the drills that are still to run, round by round, so that an early end has some of each."""
    done = [run.drill for run in runs if run.code == code]
    return tuple(name for number in range(rounds) for name in names if done.count(name) <= number)


def rows_of(runs: Iterable[Run]) -> tuple[Row, ...]:
    """Return one row a drill, in the order of the catalogue; drills without a run are left out."""
    runs = tuple(runs)
    rows = []
    for drill in DRILLS:
        mine = [run for run in runs if run.drill == drill.name]
        scores = [run.score for run in mine if run.score is not None]
        if not mine:
            continue
        rows.append(
            Row(
                drill=drill.name,
                expected=drill.code,
                runs=len(mine),
                named=sum(score.is_named_right for score in scores),
                ruled_out=sum(score.is_truth_ruled_out for score in scores),
                ended=sum(score.is_ended_right for score in scores),
                codes=tuple(dict.fromkeys(score.named or "none" for score in scores)),
                detect_s=_median(score.detect_s for score in scores),
                snapshot_s=_median(score.snapshot_s for score in scores),
                recover_s=_median(score.recover_s for score in scores),
                lost=_median(float(score.lost) for score in scores),
                whole_s=_median(run.took_s for run in mine),
                problems=tuple(dict.fromkeys(_problem(run) for run in mine if _problem(run))),
            )
        )
    return tuple(rows)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 1) if known else None


def _problem(run: Run) -> str:
    if run.score is None:
        return run.problem or "no score"
    return "" if run.score.is_ended_right else run.score.end
