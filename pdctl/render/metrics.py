"""`pdctl metrics`: values and increases, one line a sample."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from pdctl.collect.look import Moving, Scrapes
from pdctl.dialects.signal_catalogue import SERIES
from pdctl.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

# The same for every sample of an instance: they would fill the line and tell nothing.
CONSTANT_LABELS = frozenset({"model_name", "engine_type", "served_model_name", "model"})


def chosen_samples(scrapes: Scrapes, pattern: str | None, every: bool) -> Scrapes:
    """Return the samples to show. Raises UsageError for a pattern that is no regular expression."""
    try:
        wanted = re.compile(pattern) if pattern is not None else None
    except re.error as error:
        raise UsageError(f"--grep {pattern!r} is no regular expression: {error}") from error
    known = {row.name for row in SERIES}

    def is_shown(sample: Moving) -> bool:
        if wanted is not None:
            return wanted.search(sample.series) is not None
        return every or (sample.series in known and bool(sample.value or sample.increase))

    return msgspec.structs.replace(scrapes, samples=tuple(item for item in scrapes.samples if is_shown(item)))


def as_json(scrapes: Scrapes) -> str:
    """Return samples and problems."""
    return msgspec.json.format(msgspec.json.encode(scrapes), indent=2).decode()


def as_table(scrapes: Scrapes) -> Table:
    """Return one line a sample."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("INSTANCE", no_wrap=True)
    table.add_column("SERIES", overflow="fold")
    table.add_column("VALUE", justify="right", no_wrap=True)
    table.add_column("INCREASE", justify="right", no_wrap=True)
    for sample in scrapes.samples:
        table.add_row(sample.instance, _series(sample), _number(sample.value), _increase(sample.increase))
    return table


def _series(sample: Moving) -> str:
    labels = ",".join(f"{key}={value}" for key, value in sample.labels.items() if key not in CONSTANT_LABELS)
    # rich reads square brackets as markup; label values of engines hold none, but nobody promises it.
    return (f"{sample.series}{{{labels}}}" if labels else sample.series).replace("[", "\\[")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"


def _increase(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{'+' if value > 0 else ''}{_number(value)}" if value else "0"
