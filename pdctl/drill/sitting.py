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
from pdctl.drill.matrix import ResultFile, Run, pending
from pdctl.drill.rehearsal import Score
from pdctl.drill.stage import Stage
from pdctl.errors import NotProven

MakeStage = Callable[[Drill], AbstractContextManager[Stage]]


class Sitting:
    """Fills a result file."""

    def __init__(self, results: Path, *, model: str, seed: int, say: Callable[[str], None]) -> None:
        self._file = ResultFile(results)
        self._model = model
        self._seed = seed
        self._say = say
        self._code = provenance.sources_hash()
        self._commit = provenance.commit()

    def fill(self, drills: Sequence[Drill], rounds: int, stage: MakeStage, *, resume: bool) -> tuple[Run, ...]:
        """Play every drill `rounds` times, with `resume` only what the file lacks; return all those runs.

        A fault that does not come about is a run without a score. Ctrl-C loses only the run under way.
        """
        done = [run for run in self._file.runs() if run.code == self._code] if resume else []
        by_name = {drill.name: drill for drill in drills}
        wanted = pending(done, self._code, rounds, list(by_name))
        for number, name in enumerate(wanted, 1):
            self._say(f"--- {name} ({number} of {len(wanted)})")
            run = self._played(by_name[name], self._seed + number, stage)
            self._file.append(run)
            done.append(run)
        return tuple(done)

    def _played(self, drill: Drill, seed: int, make_stage: MakeStage) -> Run:
        score: Score | None = None
        problem: str | None = None
        try:
            with make_stage(drill) as stage:
                score = rehearsal.scored(stage, drill, rehearsal.caused(stage, drill, seed))
        except NotProven as error:
            problem = error.message
        self._say(f"{drill.name}: {problem or _told(score)}")
        return Run(
            at=time.time(),
            drill=drill.name,
            code=self._code,
            commit=self._commit,
            version=__version__,
            model=self._model,
            seed=seed,
            load_average=round(os.getloadavg()[0], 2),
            score=score,
            problem=problem,
        )


def _told(score: Score | None) -> str:
    if score is None:
        return "no score"
    return f"named {score.named}, true is {score.expected}; {score.verdict}; {score.end}"
