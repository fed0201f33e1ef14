"""Collector: what a Prometheus has kept of one instance, for the series that the dialects know.

Names change with the scraper: Prometheus 2.42 stores `sglang_num_running_reqs` where `/metrics` says
`sglang:num_running_reqs` (prometheus_client >= 0.23.1). Both spellings are asked for.
"""

from __future__ import annotations

import math
import re
import sys
from urllib.parse import urlsplit

import msgspec

from pdctl.collect import history_query
from pdctl.collect.context import Context
from pdctl.collect.metrics import metrics_place
from pdctl.collect.records import Status, Taken, now
from pdctl.collect.target import Target
from pdctl.dialects.signal_catalogue import SERIES
from pdctl.hosts import child

NAME = "history.json"
WINDOW_S = 3600.0
POINTS = 240
HISTORY_S = 8.0
OUTPUT_MOST_BYTES = 8 << 20


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The file. Each series has `metric` (its labels, `__name__` among them) and `values` ([Unix time, text])."""

    source: str
    selector: str
    start: float
    end: float
    step_s: float
    series: tuple[dict[str, object], ...]


async def take(target: Target, context: Context, prometheus: str) -> list[Taken]:
    """Ask for the last hour. Labels are those of a plain scrape: `instance` is HOST:PORT of the metrics address."""
    # The library rounds to whole seconds; rounded down, the newest sample would be left out.
    end = math.ceil(now().timestamp())
    step_s = max(15.0, WINDOW_S / POINTS)
    selector = selector_of(target)
    deadline_s = context.deadline.at_most(HISTORY_S)
    asked = {
        "url": prometheus,
        "selector": selector,
        "start": end - WINDOW_S,
        "end": end,
        "step_s": step_s,
        "timeout_s": deadline_s,
    }
    done = await child.run(
        [sys.executable, "-P", history_query.__file__],
        stdin=msgspec.json.encode(asked),
        deadline_s=deadline_s,
        most_bytes=OUTPUT_MOST_BYTES,
    )
    if not done.ok:
        return [Taken(name=NAME, status=_status(done), error=done.describe(), took_ms=done.took_ms)]
    series = msgspec.json.decode(done.stdout, type=tuple[dict[str, object], ...])
    if not series:
        error = f"{prometheus} has no such series: {selector[-120:]}; is `instance` relabelled there?"
        return [Taken(name=NAME, status=Status.ABSENT, error=error, took_ms=done.took_ms)]
    made = History(source=prometheus, selector=selector, start=end - WINDOW_S, end=end, step_s=step_s, series=series)
    return [Taken(name=NAME, content=msgspec.json.encode(made), took_ms=done.took_ms)]


def selector_of(target: Target) -> str:
    """Return a selector of all known series of this instance, in both spellings of a colon."""
    names = sorted({re.escape(row.name).replace(":", "[:_]") for row in SERIES})
    place = urlsplit(metrics_place(target.instance)[0]).netloc
    # A regular expression inside a quoted string: each backslash twice.
    pattern = "|".join(names).replace("\\", "\\\\")
    return f'{{__name__=~"{pattern}",instance="{place}"}}'


def _status(done: child.Child) -> Status:
    if done.end is child.End.TIMEOUT:
        return Status.TIMEOUT
    return Status.ABSENT if done.code == history_query.MISSING else Status.FAILED
