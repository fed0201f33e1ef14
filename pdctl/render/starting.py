"""Progress of `pdctl up` on stderr: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pdctl.deployment.readiness import Event, Phase, Progress
from pdctl.render import console

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {Phase.READY: "green", Phase.ALREADY: "green", Phase.WAITING: "yellow", Phase.STARTED: "yellow"}


@contextmanager
def start_display() -> Iterator[Progress]:
    """Give a function that shows each event as it comes."""
    if not sys.stderr.isatty():
        yield line_display()
        return
    from rich.live import Live

    events: dict[str, Event] = {}
    with Live(console=console.stderr_console(), auto_refresh=False, transient=False) as live:

        def show(event: Event) -> None:
            events[event.instance] = event
            live.update(_table(events), refresh=True)

        yield show


def line_display() -> Progress:
    """Return a function that prints each change of an instance as a line."""
    last: dict[str, tuple[Phase, str]] = {}

    def show(event: Event) -> None:
        if last.get(event.instance) != (event.phase, event.detail):
            last[event.instance] = (event.phase, event.detail)
            detail = f" ({event.detail})" if event.detail else ""
            console.tell(f"{event.elapsed_s:6.1f} s  {event.instance}: {event.phase}{detail}")

    return show


def _table(events: dict[str, Event]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for event in events.values():
        table.add_row(
            event.instance,
            Text(event.phase.value, style=STYLES[event.phase]),
            Text(event.detail),
            f"{event.elapsed_s:.1f} s",
        )
    return table
