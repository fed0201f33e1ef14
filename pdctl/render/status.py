"""`pdctl status` and the closing table of `pdctl up`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pdctl.deployment.overview import InstanceStatus, Overview

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "-"


def as_json(overview: Overview) -> str:
    """Return the whole overview; seconds and milliseconds as their names say."""
    return msgspec.json.format(msgspec.json.encode(overview), indent=2).decode()


def as_table(overview: Overview) -> Table:
    """Return one line an instance."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("INSTANCE", "ROLE", "PID", "AGE"):
        table.add_column(title, no_wrap=True)
    table.add_column("HEALTH", overflow="fold", min_width=8)
    for title in ("RUN", "WAIT", "OLDEST"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in overview.instances:
        table.add_row(
            row.name,
            row.role,
            _or_unknown(row.pid),
            age(row.age_s),
            Text(_health(row), style="green" if row.is_well else "red"),
            _or_unknown(row.running),
            _or_unknown(row.waiting),
            age(row.oldest_s) if row.oldest_s is None or row.running or row.waiting else UNKNOWN,
        )
    return table


def age(seconds: float | None) -> str:
    """Return a duration in its two largest units, e.g. `3m 12s`, `2d 4h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, next_size, next_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // next_size}{next_unit}"
    return f"{whole}s"


def _health(row: InstanceStatus) -> str:
    words = row.health
    if row.pid is None and row.process not in ("not managed here", "never started"):
        words = row.process
    if row.pid is not None and row.process != "running":
        words += f" ({row.process})"
    return words + (f", restarted {row.restarts}x" if row.restarts else "")


def _or_unknown(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
