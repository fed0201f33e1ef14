"""One sitting at the matrix: plays what is still to run, and writes each run down at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pdctl import __version__
from pdctl.drill import provenance, rehearsal
from pdctl.drill.catalogue import Drill
from pdctl.drill.matrix import Run, pending
from pdctl.drill.rehearsal import Score
from pdctl.drill.result_file import ResultFile
from pdctl.drill.stage import Stage
from pdctl.errors import NotProven, PdctlError

MakeStage = Callable[[Drill], AbstractContextManager[Stage]]


class Sitting:
    """Fills a result file."""

    def __init__(self, results: Path, *, model: str, seed: int, say: Callable[[str], None]) -> None:
        self._file = ResultFile(results, Run)
        self._model = model
        self._seed = seed
        self._say = say
        self._code = provenance.sources_hash()
        self._commit = provenance.commit()

    def fill(self, drills: Sequence[Drill], rounds: int, stage: MakeStage, *, resume: bool) -> tuple[Run, ...]:
        """Play every drill `rounds` times, with `resume` only what the file lacks; return all those runs.

        A drill that cannot be played to its end is a run without a score; the others are played all the same. Each run
        has a seed of its own, over all sittings. Ctrl-C loses only the run under way. Raises PdctlError where a
        deployment cannot be started at all, or the file takes no results, UsageError where it holds something else.
        """
        before = self._file.begin()
        done = [run for run in before if run.code == self._code] if resume else []
        by_name = {drill.name: drill for drill in drills}
        wanted = pending(done, self._code, rounds, list(by_name))
        for number, name in enumerate(wanted, 1):
            self._say(f"--- {name} ({number} of {len(wanted)})")
            run = self._played(by_name[name], self._seed + len(done) + 1, stage)
            self._file.append(run)
            done.append(run)
        return tuple(done)

    def _played(self, drill: Drill, seed: int, make_stage: MakeStage) -> Run:
        began = time.monotonic()
        try:
            with make_stage(drill) as stage:
                outcome = _outcome(stage, drill, seed)
        except NotProven as error:  # Its deployment was not well in time.
            outcome = error.message
        self._say(f"{drill.name}: {_told(outcome)}")
        return Run(
            at=time.time(),
            drill=drill.name,
            code=self._code,
            commit=self._commit,
            version=__version__,
            model=self._model,
            seed=seed,
            load_average=round(os.getloadavg()[0], 2),
            took_s=round(time.monotonic() - began, 2),
            score=outcome if isinstance(outcome, Score) else None,
            problem=outcome if isinstance(outcome, str) else None,
        )


def _outcome(stage: Stage, drill: Drill, seed: int) -> Score | str:
    """Return the score, or why there is none."""
    try:
        return rehearsal.scored(stage, drill, rehearsal.caused(stage, drill, seed))
    except PdctlError as error:
        return error.message


def _told(outcome: Score | str) -> str:
    if isinstance(outcome, str):
        return outcome
    return f"named {outcome.named}, true is {outcome.expected}; {outcome.verdict}; {outcome.end}"
