"""A load on the screen: a live table while it runs, the whole at its end, the grid of a bisection."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from pdctl.load.grid import Cell
from pdctl.load.tally import Figures
from pdctl.render import console as consoles

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SHOW_S = 0.5
LINE_EACH_S = 5.0

Show = Callable[[Figures], None]


@contextmanager
def live_display() -> Iterator[Show]:
    """Give a function that shows figures: a live table on a terminal, a line each five seconds elsewhere."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.live import Live

    with Live(console=consoles.stderr_console(), auto_refresh=False, transient=True) as live:
        yield lambda figures: live.update(figures_table(figures), refresh=True)


def _lines() -> Show:
    last_at = time.monotonic()

    def show(figures: Figures) -> None:
        nonlocal last_at
        if time.monotonic() - last_at >= LINE_EACH_S:
            last_at = time.monotonic()
            consoles.tell(
                f"{figures.elapsed_s:6.0f} s  {figures.in_flight} in flight, {figures.requests} ended, "
                f"{figures.failed} failed, {figures.wrong} wrong, {figures.tokens_per_s:.0f} tokens/s"
            )

    return show


def figures_table(figures: Figures) -> Table:
    """Return the figures as two columns."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in _rows(figures):
        table.add_row(name, value)
    return table


def print_figures(figures: Figures, console: Console) -> None:
    """Print what became of a load."""
    console.print(figures_table(figures))
    for example in figures.examples:
        console.print(f"e.g. {' '.join(example.split())}", markup=False)


def figures_json(figures: Figures) -> str:
    """Return one object."""
    whole = msgspec.to_builtins(figures) | {"failed": figures.failed, "wrong": figures.wrong}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def print_grid(cells: Sequence[Cell], console: Console) -> None:
    """Print the grid."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("SESSIONS", "TURNS", "ABORTS", "WRONG", "RATE", "95 % INTERVAL", "FAILED"):
        table.add_column(title, justify="right")
    for cell in cells:
        low, high = cell.interval
        table.add_row(
            str(cell.sessions),
            "several" if cell.is_multi_turn else "one",
            "yes" if cell.has_aborts else "no",
            f"{cell.wrong}/{cell.checked}",
            f"{cell.wrong / cell.checked:.1%}" if cell.checked else "-",
            f"{low:.1%} to {high:.1%}",
            f"{cell.failed}/{cell.requests}",
        )
    console.print(table)


def grid_json(cells: Sequence[Cell]) -> str:
    """Return one object a cell."""
    rows = [msgspec.to_builtins(cell) | {"interval": cell.interval} for cell in cells]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def _rows(figures: Figures) -> Iterator[tuple[str, str]]:
    yield "in flight", f"{figures.in_flight}   after {figures.elapsed_s:.0f} s"
    yield "ended", f"{figures.requests}   {_counts(figures.outcomes) or '-'}"
    yield "first token", f"{_seconds(figures.ttft_p50_s)} median, {_seconds(figures.ttft_p95_s)} at 95 %"
    yield "whole answer", f"{_seconds(figures.took_p50_s)} median"
    yield "tokens", f"{figures.tokens}   {figures.tokens_per_s:.0f} a second"
    yield "content", f"{_counts(figures.canaries) or 'no canary came back yet'}"
    yield "tool calls", f"{figures.answers_with_calls} answers with calls, {figures.markup_faults} with faulty markup"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.0f} ms"
