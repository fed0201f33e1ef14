"""What several sittings write is read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.drill.matrix import Run
from pdctl.drill.result_file import ResultFile
from pdctl.errors import PdctlError, UsageError
from tests.unit.pdctl.drill.test_matrix import RUN, run


def test_a_file_grows_by_lines(tmp_path: Path) -> None:
    """What was written is read again, in order."""
    file = ResultFile(tmp_path / "results.jsonl", Run)
    assert file.results() == ()
    first, second = run("starved"), run("leak")
    file.append(first)
    file.append(second)
    assert file.results() == (first, second)


def test_a_file_of_something_else_is_not_touched(tmp_path: Path) -> None:
    """Named in the message."""
    path = tmp_path / "notes.txt"
    path.write_text("milk, bread\n")
    with pytest.raises(UsageError, match="no result file"):
        ResultFile(path, Run).results()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """One message, with what to do."""
    with pytest.raises(PdctlError, match="cannot write"):
        ResultFile(tmp_path / "missing" / "results.jsonl", Run).append(RUN)
