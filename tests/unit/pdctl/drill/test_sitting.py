"""A sitting fills its file whatever becomes of a single drill. Stages here cannot be played on; real ones: serving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import cast

import pytest

from pdctl.drill.catalogue import DRILLS, Drill
from pdctl.drill.matrix import Run
from pdctl.drill.sitting import Sitting
from pdctl.drill.stage import Stage
from pdctl.errors import NotProven, PdctlError, UsageError

TWO = DRILLS[:2]
WHY = "cannot limit memory here"


class Unable:
    """A stage on which nothing can be done."""

    def must_serve(self) -> None:
        """Fail as a machine that lacks something does."""
        raise PdctlError(WHY)


@contextmanager
def unable(drill: Drill) -> Iterator[Stage]:
    """A deployment that runs, on which no drill can be played."""
    yield cast(Stage, Unable())


def raising(error: PdctlError) -> Callable[[Drill], AbstractContextManager[Stage]]:
    """Return what fails to start a deployment."""

    @contextmanager
    def make(drill: Drill) -> Iterator[Stage]:
        raise error
        yield

    return make


def sitting(folder: Path) -> Sitting:
    """Return one that writes to a file in the folder."""
    return Sitting(folder / "results.jsonl", model="m", seed=100, say=lambda line: None)


def seen(runs: tuple[Run, ...]) -> list[tuple[str, int, str | None]]:
    """Return drill, seed and problem of each run."""
    return [(run.drill, run.seed, run.problem) for run in runs]


def test_a_drill_that_cannot_be_played_ends_no_sitting(tmp_path: Path) -> None:
    """Each is a run without a score, and says why."""
    done = sitting(tmp_path).fill(TWO, 1, unable, resume=False)
    assert seen(done) == [
        (TWO[0].name, 101, "cannot limit memory here"),
        (TWO[1].name, 102, "cannot limit memory here"),
    ]
    assert not any(run.is_passed for run in done)


def test_a_later_sitting_goes_on_with_seeds_of_its_own(tmp_path: Path) -> None:
    """The second round sends other requests than the first."""
    sitting(tmp_path).fill(TWO, 1, unable, resume=True)
    done = sitting(tmp_path).fill(TWO, 2, unable, resume=True)
    assert [(run.drill, run.seed) for run in done] == [
        (TWO[0].name, 101),
        (TWO[1].name, 102),
        (TWO[0].name, 103),
        (TWO[1].name, 104),
    ]


def test_a_deployment_that_was_not_well_in_time_is_a_run(tmp_path: Path) -> None:
    """The machine was slow, or the engine is broken: it counts."""
    done = sitting(tmp_path).fill(TWO[:1], 1, raising(NotProven("not well within 120 s")), resume=False)
    assert seen(done) == [(TWO[0].name, 101, "not well within 120 s")]


def test_where_no_deployment_can_be_started_it_ends(tmp_path: Path) -> None:
    """A port that is taken would fail all the others as well."""
    with pytest.raises(PdctlError, match="port 31000 is taken"):
        sitting(tmp_path).fill(TWO, 1, raising(PdctlError("port 31000 is taken")), resume=False)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("missing/results.jsonl", PdctlError), ("notes.txt", UsageError)])
def test_nothing_is_played_for_a_file_that_takes_no_results(
    tmp_path: Path, name: str, kind: type[PdctlError], resume: bool
) -> None:
    """A drill takes most of a minute; what is in the file already stays as it is."""
    (tmp_path / "notes.txt").write_text("milk, bread\n")
    played: list[Drill] = []
    with pytest.raises(kind):
        Sitting(tmp_path / name, model="m", seed=1, say=lambda line: None).fill(
            TWO, 1, lambda drill: played.append(drill) or unable(drill), resume=resume
        )
    assert played == []
    assert (tmp_path / "notes.txt").read_text() == "milk, bread\n"
