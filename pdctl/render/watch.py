"""`pdctl watch`: a table that is drawn anew, a table after the other where that cannot be, or JSON lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from pdctl.render.status import UNKNOWN, age
from pdctl.watch.sight import CanarySight, InstanceSight, Sight

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

_STYLES = {"wedged": "bold red", "failing": "red", "degraded": "yellow", "healthy": "green", "not_a_wedge": "green"}
_CANARY_STYLES = {True: "", None: "yellow", False: "red"}
LINES_MOST = 3
"""Causes and symptoms below the table: the first ones decide."""

_Cell = Callable[[InstanceSight], str]


def as_json_line(sight: Sight) -> str:
    """Return one line, for scripts."""
    return msgspec.json.encode(sight).decode()


@contextlib.contextmanager
def screen(console: Console) -> Iterator[Callable[[Sight], None]]:
    """Yield what shows a sight: in place on a terminal, one below the other elsewhere. Leaves the cursor as it was."""
    if not console.is_terminal:
        yield lambda sight: console.print(as_block(sight))
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        yield lambda sight: live.update(as_block(sight), refresh=True)


def as_block(sight: Sight) -> Group:
    """Return verdict, table and what is wrong; fits 80 columns."""
    from rich.console import Group

    return Group(_headline(sight), _table(sight), *_below(sight))


def _headline(sight: Sight) -> Text:
    from rich.text import Text

    at = sight.at.astimezone().strftime("%H:%M:%S") if sight.at else UNKNOWN
    line = Text(f"{sight.deployment}  {at}  ", no_wrap=True, overflow="ellipsis")
    line.append(sight.verdict, style=_STYLES.get(sight.verdict, ""))
    if sight.confirmed == sight.verdict and sight.confirmed_since and sight.at:
        line.append(f" for {age((sight.at - sight.confirmed_since).total_seconds())}")
    if sight.window_s:
        line.append(f"  over {sight.window_s:.0f} s", style="dim")
    return line


def _table(sight: Sight) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("INSTANCE", no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column("STATE", no_wrap=True)
    for title, _ in _NUMBERS:
        table.add_column(title, justify="right", no_wrap=True)
    for one in sight.instances:
        state = Text(one.state, style="green" if one.state == "ok" else "red")
        table.add_row(one.name, state, *(cell(one) for _, cell in _NUMBERS))
    return table


def _below(sight: Sight) -> list[Text]:
    from rich.text import Text

    words = [f"{item.code} {item.label}, {item.instance}: {item.message}" for item in sight.causes]
    lines = [Text(text, overflow="fold") for text in (words or list(sight.symptoms))[:LINES_MOST]]
    return lines + [Text(_canary(one, sight), style=_CANARY_STYLES[one.passed]) for one in sight.canaries]


def _canary(one: CanarySight, sight: Sight) -> str:
    ago = age(max(0.0, sight.at.timestamp() - one.at)) if sight.at else UNKNOWN
    return f"canary {one.via}: {'passed' if one.passed else one.why} in {one.took_ms / 1000:.1f} s, {ago} ago"


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _rate(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


_NUMBERS: tuple[tuple[str, _Cell], ...] = (
    ("RUN", lambda one: _count(one.running)),
    ("WAIT", lambda one: _count(one.waiting)),
    ("OLDEST", lambda one: age(one.oldest_s) if one.oldest_s else UNKNOWN),
    ("REQ/S", lambda one: _rate(one.requests_s)),
    ("TOK/S", lambda one: _rate(one.tokens_s)),
    ("KV MB/S", lambda one: _rate(one.kv_mb_s)),
    ("FAILED", lambda one: _count(one.failed)),
)
"""Columns right of the state."""
