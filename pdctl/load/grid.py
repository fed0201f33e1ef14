"""The grid that isolates corruption under concurrency: each cell one kind of load, its rate of wrong answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import product

import msgspec

from pdctl.load.canaries import Canaries, Content
from pdctl.load.generator import Generator
from pdctl.load.profile import Profile, Range
from pdctl.load.tally import Figures
from pdctl.load.wire import Endpoint

ALONE, CROWD = 1, 60
SINGLE, MULTI = Range(1, 1), Range(3, 6)
ABORTS = 0.3
CANARIES = 0.5
Z_95 = 1.96


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of load and what became of it."""

    sessions: int
    is_multi_turn: bool
    has_aborts: bool
    checked: int
    """Answers whose content was judged."""
    wrong: int
    failed: int
    requests: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the rate of wrong answers."""
        return wilson(self.wrong, self.checked)


def profiles(base: Profile) -> tuple[Profile, ...]:
    """Return the cells' profiles: alone or all at once, one turn or several, with and without clients that leave."""
    return tuple(
        msgspec.structs.replace(
            base, sessions=sessions, turns=turns, abort_rate=aborts, canary_rate=CANARIES, kill_after_s=None
        )
        for sessions, turns, aborts in product(dict.fromkeys((ALONE, base.sessions)), (SINGLE, MULTI), (0.0, ABORTS))
    )


def fill(
    endpoint: Endpoint, base: Profile, canaries: Canaries, cell_s: float, tell: Callable[[str], None]
) -> tuple[Cell, ...]:
    """Run every cell for `cell_s` seconds, one after the other."""
    cells = []
    for profile in profiles(base):
        cell = cell_of(profile, asyncio.run(_cell(endpoint, profile, canaries, cell_s)))
        tell(described(cell))
        cells.append(cell)
    return tuple(cells)


async def _cell(endpoint: Endpoint, profile: Profile, canaries: Canaries, cell_s: float) -> Figures:
    generator = Generator(endpoint, profile, canaries)
    await generator.run(cell_s)
    return generator.figures()


def cell_of(profile: Profile, figures: Figures) -> Cell:
    """Return the row of a cell that ran."""
    judged = figures.canaries.get(Content.RIGHT, 0) + figures.canaries.get(Content.WRONG, 0)
    return Cell(
        sessions=profile.sessions,
        is_multi_turn=profile.turns.high > 1,
        has_aborts=profile.abort_rate > 0,
        # Each answer with a tool call was judged too: its markup.
        checked=judged + figures.answers_with_calls,
        wrong=figures.wrong,
        failed=figures.failed,
        requests=figures.requests,
    )


def described(cell: Cell) -> str:
    """Return a cell in words."""
    turns = "multi-turn" if cell.is_multi_turn else "single-turn"
    aborts = "with aborts" if cell.has_aborts else "no aborts"
    low, high = cell.interval
    return (
        f"{cell.sessions} x {turns}, {aborts}: {cell.wrong} of {cell.checked} answers wrong "
        f"({low:.1%} to {high:.1%}), {cell.failed} of {cell.requests} requests failed"
    )


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate, by Wilson's score; all of it where nothing was tried."""
    if trials == 0:
        return 0.0, 1.0
    rate, spread = hits / trials, Z_95**2 / trials
    centre = rate + spread / 2
    width = Z_95 * math.sqrt(rate * (1 - rate) / trials + spread / (4 * trials))
    return max(0.0, (centre - width) / (1 + spread)), min(1.0, (centre + width) / (1 + spread))
