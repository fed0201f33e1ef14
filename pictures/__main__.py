"""Draws the pictures of the README, from what the commands print.

python -m pictures                           the first screen of a diagnosis -> pictures/diagnosis.svg
python -m pictures --results RESULTS.jsonl   and the fault matrix of `pdctl drill --all` -> pictures/matrix.svg
"""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from pdctl.diagnose.diagnosis import diagnose
from pdctl.drill.matrix import Run, rows_of
from pdctl.drill.result_file import ResultFile
from pdctl.evidence.directory import read_directory
from pdctl.render.drill import matrix_table
from pdctl.render.report_table import WIDTH, as_table

HERE = Path(__file__).parent
INCIDENT = HERE.parent / "tests" / "corpus" / "incidents" / "i075"
MATRIX_WIDTH = 110
_WEB_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.S)


def recorder(width: int) -> Console:
    """Return a console that records what is printed, and shows nothing."""
    return Console(record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False)


def draw(console: Console, folder: Path, name: str, title: str) -> None:
    """Write what was recorded; the same text gives the same bytes, and no font is fetched from anywhere."""
    drawn = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    path = folder / f"{name}.svg"
    path.write_text(_WEB_FONTS.sub("", drawn), encoding="utf-8")
    print(path)


def title_of(runs: Sequence[Run]) -> str:
    """Return whose figures these are."""
    models, commits = ({getattr(run, name) or "no checkout" for run in runs} for name in ("model", "commit"))
    return f"pdctl drill --all: {len(runs)} runs, {', '.join(sorted(models))}, {', '.join(sorted(commits))}"


def main() -> None:
    """Draw them."""
    parser = argparse.ArgumentParser(
        prog="python -m pictures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--incident", type=Path, default=INCIDENT, help="folder to diagnose")
    parser.add_argument("--results", type=Path, help="result file of `pdctl drill --all`")
    parser.add_argument("--out", type=Path, default=HERE, help="where the pictures go")
    given = parser.parse_args()
    screen = recorder(WIDTH + 2)
    screen.print(as_table(diagnose(read_directory(given.incident))), markup=False)
    draw(screen, given.out, "diagnosis", f"pdctl diagnose {given.incident.name}")
    if given.results is not None:
        matrix = recorder(MATRIX_WIDTH)
        runs = ResultFile(given.results, Run).results()
        matrix.print(matrix_table(rows_of(runs)))
        draw(matrix, given.out, "matrix", title_of(runs))


if __name__ == "__main__":
    main()
