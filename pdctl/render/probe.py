"""A probe's report: a table of at most 80 columns for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from pdctl.probe.report import ProbeReport, ProbeResult, Stage, StageTime, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = "pdctl.probe/1"
MOST_COLUMNS = 80
BAR_COLUMNS = 24
MOST_DETAILED = 4
"""Above this many requests each gets one line, and only those that failed are shown in full."""

NEXT = "next: pdctl status (who is not well?), pdctl logs (why?), pdctl probe --direct"

WORDS = {
    Verdict.PROVEN: ("ok", "green", "proven"),
    Verdict.NOT_PROVEN: ("FAIL", "bold red", "not proven"),
    Verdict.UNKNOWN: ("?", "yellow", "could not tell"),
}
"""Verdict -> mark, style, words. The words carry the meaning; colour only repeats it."""


def probe_json(report: ProbeReport) -> str:
    """Return the report as one JSON object; times are milliseconds, sizes bytes, `at` Unix seconds."""
    whole = {"schema": SCHEMA, "verdict": report.verdict, "exit_code": report.exit_code}
    content = whole | msgspec.to_builtins(report)
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def print_probe(report: ProbeReport, console: Console) -> None:
    """Print the table; the verdict stands first and last."""
    console.width = min(console.width, MOST_COLUMNS)
    is_short = len(report.results) > MOST_DETAILED
    if is_short:
        console.print(_overview(report.results))
    for result in report.results:
        if not is_short or result.verdict is not Verdict.PROVEN:
            _print_result(result, console)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    if report.verdict is not Verdict.PROVEN:
        console.print(NEXT, markup=False, highlight=False)
    console.print(_last_line(report), style=WORDS[report.verdict][1], markup=False, highlight=False)


def _print_result(result: ProbeResult, console: Console) -> None:
    mark, style, words = WORDS[result.verdict]
    way = result.via
    if result.pair and result.via != " -> ".join(result.pair):
        way += f" ({result.pair[0]} -> {result.pair[1]})"
    console.print(f"{mark}  {way}: {words}", style=style, markup=False, highlight=False)
    if result.stages:
        console.print(_stage_table(result))
    for line in _facts(result):
        console.print(f"   {line}", markup=False, highlight=False)
    console.print()


def _stage_table(result: ProbeResult) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column("   stage", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("+ms", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    longest = max(item.took_ms for item in result.stages)
    for item in result.stages:
        words = f"   {stage_words(item.stage)}"
        table.add_row(words, f"{item.at_ms:.1f}", f"{item.took_ms:.1f}", _bar(item, longest))
    return table


def _bar(item: StageTime, longest: float) -> str:
    """Return a bar whose length is the stage's share of the longest one; no stage that took time is empty."""
    if item.took_ms <= 0 or longest <= 0:
        return ""
    return "█" * max(1, round(item.took_ms / longest * BAR_COLUMNS))


def _facts(result: ProbeResult) -> Iterator[str]:
    if result.kv_bytes is not None:
        speed = f" at {result.kv_gb_s:.2f} GB/s" if result.kv_gb_s else ""
        cached = f", {result.cached_tokens} tokens cached" if result.cached_tokens else ""
        yield f"KV: {size_words(result.kv_bytes)} for {result.prompt_tokens} prompt tokens{speed}{cached}"
    if result.unseen:
        yield f"not visible on this engine: {', '.join(stage_words(stage) for stage in result.unseen)}"
    yield f"output {result.output}: {result.why}" if result.text is not None else result.why
    if result.verdict is not Verdict.PROVEN:
        reached = stage_words(result.stage) if result.stage else "none: the request could not be sent"
        ended = "gave up" if result.error == "timeout" else "ended"
        yield f"last stage reached: {reached}; {ended} after {result.took_ms / 1000:.1f} s"
    yield from result.live
    if result.held_by:
        numbers = ", ".join(str(pid) for pid in result.held_by)
        yield f"connection kept open by process {numbers}, until the engine ends it"
    yield f"id {result.id}"


def _overview(results: Sequence[ProbeResult]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1), show_edge=False)
    for title, justify in (("", "left"), ("via", "left"), ("ttft ms", "right"), ("all ms", "right")):
        table.add_column(title, justify="right" if justify == "right" else "left", overflow="ellipsis")
    table.add_column("KV", justify="right")
    table.add_column("output")
    for result in results:
        mark, style, _ = WORDS[result.verdict]
        ttft = "-" if result.ttft_ms is None else f"{result.ttft_ms:.1f}"
        size = "-" if result.kv_bytes is None else size_words(result.kv_bytes)
        table.add_row(mark, result.via, ttft, f"{result.took_ms:.1f}", size, result.output.value, style=style)
    return table


def _last_line(report: ProbeReport) -> str:
    _, _, words = WORDS[report.verdict]
    proven = sum(result.verdict is Verdict.PROVEN for result in report.results)
    return f"{words}: {proven} of {len(report.results)} requests on {report.deployment}"


def stage_words(stage: Stage) -> str:
    """Return a stage as people write it."""
    return stage.value.replace("_", " ").replace("kv ", "KV ")


def size_words(size_bytes: int) -> str:
    """Return a size in decimal units, three digits."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{f'{size:#.3g}'.rstrip('.')} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
