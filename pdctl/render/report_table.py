"""The first screen of a report: 80 columns by 24 rows, the important thing first and again at the end."""

from __future__ import annotations

import textwrap
from datetime import datetime

from pdctl.diagnose.report import Cause, RankRow, Report
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.verdict import Verdict
from pdctl.render.recurrence import seen_text

WIDTH, HEIGHT = 80, 24
_SYMBOL = {
    "wedged": "✗", "failing": "✗", "degraded": "!", "not_a_wedge": "i", "healthy": "✓", "unknown": "?",
}  # fmt: skip
_MEANING = {
    "wedged": "requests hang and will not recover by themselves",
    "failing": "half or more of the requests fail",
    "degraded": "something is broken; that requests hang is not proven",
    "not_a_wedge": "it looks like a wedge and is none",
    "healthy": "requests pass",
    "unknown": "nothing proves that requests pass, nor that they hang",
}


def as_table(report: Report, is_verbose: bool = False) -> str:
    """Return the screen. With `is_verbose` everything that was found follows, without bound."""
    lines = [_headline(report), *_impact(report), ""]
    lines += _suspects(report)
    firm = report.firm
    lines += _cause_block(firm[0]) if firm else _no_cause(report)
    lines += [*_others(report), *_left_out(report), *_seen(report)]
    lines += [*_excluded(report), *_problems(report)]
    ending = ["", *_ending(report)]
    body = lines if is_verbose else lines[: HEIGHT - 1 - len(ending)]
    text = [*body, *ending]
    if is_verbose:
        text += ["", *_details(report)]
    return "\n".join(line[:WIDTH] if not is_verbose else line for line in text)


def _headline(report: Report) -> str:
    at = _clock(report.captured_at)
    name = f"  {report.deployment}" if report.deployment else ""
    verdict = report.verdict.upper().replace("_", " ")
    return f"{_SYMBOL[report.verdict]} {verdict}{name}  {at}  pdctl {report.tool.version}"


def _clock(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%SZ") if at else "time unknown"


def _impact(report: Report) -> list[str]:
    since = f", since {_clock(report.since)}" if report.since else ""
    lines = _wrap(f"  {_MEANING[report.verdict]} (impact: {report.impact.scope}{since})")
    return lines + _wrap(f"  seen: {report.impact.basis}")[:2]


_ANSWERS = {
    "yes": "yes", "follows": "yes, as a consequence", "no": "no", "possible": "possible, not proven",
    "unlikely": "unlikely", "not_checked": "could not be checked",
}  # fmt: skip


def _suspects(report: Report) -> list[str]:
    """Return what became of each suspicion: it was asked for, so it comes first."""
    lines: list[str] = []
    for row in report.suspicions[:3]:
        lines += [f"Suspect  {row.code} {row.name}? {_ANSWERS[row.answer]}", *_wrap(row.text, "         ")[:2]]
    rest = ", ".join(f"{row.code} {_ANSWERS[row.answer]}" for row in report.suspicions[3:])
    return [*lines, f"         {rest}"] if rest else lines


def _cause_block(cause: Cause) -> list[str]:
    head = f"Cause    {cause.code} {cause.name} on {cause.subject.instance} ({cause.confidence})"
    lines = [head, *_wrap(cause.message, "         ")[:3]]
    for row in [row for row in cause.observations if row.weight in ("suggests", "proves")][1:3]:
        lines += _wrap(f"+ {row.text}", "         ")[:1]
    return lines


def _no_cause(report: Report) -> list[str]:
    is_complete = not report.hidden and not report.suppressed
    nothing = "none is proven; pdctl names none rather than a wrong one" if is_complete else "no other is proven"
    lines = [f"Cause    {nothing}"]
    for cause in report.causes[:3]:
        lines += _wrap(f"possible: {cause.code} {cause.message}", "         ")[:1]
    for row in report.undecided[:1]:
        lines += _wrap(f"undecided between {', '.join(row.codes)}: {row.separate_by.text}", "         ")[:2]
    return lines


def _others(report: Report) -> list[str]:
    rest = report.firm[1:4]
    return [
        f"Also     {cause.code} {cause.name} on {cause.subject.instance} ({cause.causal_role})"[:WIDTH]
        for cause in rest
    ]


def _seen(report: Report) -> list[str]:
    return [f"Seen     {text}"[:WIDTH] for text in seen_text(report)]


def _left_out(report: Report) -> list[str]:
    """Return what stands and is not shown, because it was accepted or others were asked for."""
    lines = []
    if report.suppressed:
        lines.append(f"Accepted {', '.join(report.suppressed)} (--suppress)"[:WIDTH])
    if report.hidden:
        lines.append(f"Hidden   {', '.join(report.hidden)} stand too (left out by --only)"[:WIDTH])
    return lines


def _excluded(report: Report) -> list[str]:
    lines: list[str] = []
    # What fails on an absent role or backend teaches nobody anything.
    telling = [row for row in report.ruled_out if row.observation.source.file]
    for row in telling[:3]:
        label = "Not      " if not lines else "         "
        lines += [(label + f"{row.code} {row.reason}")[:WIDTH]]
    if report.not_checked:
        lines.append(
            f"Unchecked {len(report.not_checked)} of {report.checked} causes; first: {report.not_checked[0].reason}"[
                :WIDTH
            ]
        )
    return lines


def _problems(report: Report) -> list[str]:
    failed = [row for row in report.collectors if row.status not in ("ok", "absent")]
    if not failed:
        return []
    return [f"Missing  {failed[0].name} of {failed[0].instance}: {failed[0].error} ({len(failed)} in all)"[:WIDTH]]


def _ending(report: Report) -> list[str]:
    firm = report.firm
    if not firm:
        return [f"{_without_a_cause(report):<57} incident {report.incident_id}"[:WIDTH]]
    step = next((step for step in firm[0].next if step.action != "none"), firm[0].next[0] if firm[0].next else None)
    if step is None:
        return [f"Read     pdctl explain {firm[0].code}"]
    return [f"Next     {step.text} [{step.risk}]"[:WIDTH], f"         $ {step.command}"[:WIDTH]]


def _without_a_cause(report: Report) -> str:
    """Return what to do where no cause is firm: prove the path, or look at the instance whose work stands."""
    if report.verdict in (Verdict.HEALTHY, Verdict.UNKNOWN):
        return "Next     pdctl probe [sends a request] or pdctl snapshot"
    stands = next((row.instance for row in report.symptoms if row.symptom == Symptom.STALLED and row.instance), None)
    if stands is None:
        return "Next     pdctl snapshot [read-only]"
    return f"Next     pdctl stacks --native {stands} [pauses it briefly]"


def _details(report: Report) -> list[str]:
    lines = ["Symptoms"]
    lines += [f"  {row.symptom}: {row.text}" for row in report.symptoms] or ["  none"]
    for cause in report.causes:
        lines += [
            "",
            f"{cause.code} {cause.name}: {cause.confidence}, {cause.causal_role}, on {', '.join(cause.affected)}",
        ]
        lines += [
            f"  {row.weight}: {row.text} [{_place(row.source.file, row.source.line, row.source.pointer)}]"
            for row in cause.observations
        ]
    lines += ["", "Time line"]
    lines += [f"  {_clock(row.at)} {row.instance}: {row.what}" for row in report.timeline] or ["  nothing with a time"]
    lines += ["", "Ranks"]
    lines += [_rank(row) for row in report.rank_stacks] or ["  no stacks were taken"]
    lines += ["", "Ruled out"]
    lines += [f"  {row.code} {row.reason}" for row in report.ruled_out] or ["  nothing"]
    return lines


def _rank(row: RankRow) -> str:
    """Return a branch: indented by its depth, an instance's name before its first."""
    ranks = ", ".join(row.ranks) if len(row.ranks) <= 4 else f"{len(row.ranks)} ranks, {row.ranks[0]}..{row.ranks[-1]}"
    head = f"  {row.instance}: " if row.depth == 0 else "  " * (row.depth + 2)
    return f"{head}{' > '.join(row.path)} [{ranks}]"


def _place(file: str, line: int | None, pointer: str | None) -> str:
    return f"{file}:{line}" if line else f"{file} {pointer}".strip() if pointer else file or "derived"


def _wrap(text: str, indent: str = "") -> list[str]:
    hanging = indent or "  "
    return textwrap.wrap(text.strip(), WIDTH, initial_indent=hanging, subsequent_indent=hanging + "  ") or [""]
