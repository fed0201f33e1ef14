"""Drills on the screen: what there is, what to do now, one score, the whole matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from pdctl.drill.catalogue import Cure, Drill
from pdctl.drill.matrix import Row
from pdctl.drill.rehearsal import Score

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_ADVICE = {
    Cure.RESTART: "pdctl snapshot-and-restart --name {name}",
    Cure.FORCED: "pdctl snapshot-and-restart --name {name} --force --reason 'drill'",
    Cure.CONFIG: "no restart helps until the cause is taken away: Ctrl-C here",
    Cure.NONE: "pdctl snapshot-and-restart --name {name}   (must refuse: nothing is wrong with the engines)",
}


def print_list(drills: Iterable[Drill], console: Console) -> None:
    """Print one line a drill."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("DRILL", "CODE", "WHAT HAPPENS"):
        table.add_column(title, overflow="fold", no_wrap=title != "WHAT HAPPENS")
    for drill in drills:
        table.add_row(drill.name, drill.code, drill.what)
    console.print(table)


def list_json(drills: Iterable[Drill]) -> str:
    """Return one object a drill."""
    rows = [{"name": item.name, "code": item.code, "what": item.what, "cure": item.cure} for item in drills]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def handover_lines(drill: Drill, name: str) -> tuple[str, ...]:
    """Return what the operator is told when the fault is there."""
    state = "it looks like a wedge now" if drill.cure is Cure.NONE else "it is wedged now"
    return (
        f"{state}: {drill.proof}",
        f"  find out what it is:  pdctl diagnose --name {name}",
        f"  bring service back:   {_ADVICE[drill.cure].format(name=name)}",
        f"  the solution:         pdctl explain {drill.code}",
    )


def score_json(score: Score) -> str:
    """Return one object."""
    whole = msgspec.to_builtins(score) | {"is_passed": score.is_passed}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def print_score(score: Score, console: Console) -> None:
    """Print what was found against what was true."""
    named = f"{score.named} on {score.subject}" if score.named else "no cause"
    whole = "" if score.recover_s is None else f", {score.recover_s:.1f} s to proven service"
    snapshot = "" if score.snapshot_s is None else f", {score.snapshot_s:.1f} s to keep the evidence"
    lines = (
        f"{'✓' if score.is_passed else '✗'} {score.drill}: {'passed' if score.is_passed else 'NOT passed'}",
        f"  true cause   {score.expected}",
        f"  named        {named} ({'right' if score.is_named_right else 'WRONG'}); verdict {score.verdict}",
        f"  ruled out    {len(score.ruled_out)} others" + (", AND THE TRUE ONE" if score.is_truth_ruled_out else ""),
        f"  end          {score.end}",
        f"  took         {score.detect_s:.1f} s to name it{snapshot}{whole}",
        f"  lost         {score.lost} requests",
        f"  evidence     {score.kept}",
    )
    for line in lines:
        console.print(line, markup=False)


def matrix_json(rows: Sequence[Row]) -> str:
    """Return one object a drill."""
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def print_matrix(rows: Sequence[Row], console: Console) -> None:
    """Print the matrix, and what went wrong below it."""
    console.print(matrix_table(rows))
    for row in rows:
        for problem in row.problems:
            console.print(f"{row.drill}: {problem}", markup=False)


def matrix_table(rows: Sequence[Row]) -> Table:
    """Return the matrix: counts are `right/runs`, seconds medians."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("DRILL", no_wrap=True)
    for title in ("TRUE", "NAMED", "RIGHT", "RULED OUT", "ENDED", "DETECT", "SNAPSHOT", "RECOVER", "LOST", "WHOLE"):
        table.add_column(title, justify="right")
    for row in rows:
        is_good = row.named == row.runs == row.ended and row.ruled_out == 0
        table.add_row(
            row.drill,
            row.expected,
            " ".join(row.codes) or "-",
            f"{row.named}/{row.runs}",
            str(row.ruled_out),
            f"{row.ended}/{row.runs}",
            _seconds(row.detect_s),
            _seconds(row.snapshot_s),
            _seconds(row.recover_s),
            "-" if row.lost is None else f"{row.lost:g}",
            _seconds(row.whole_s),
            style="" if is_good else "bold red",
        )
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
