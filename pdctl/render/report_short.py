"""At most twelve lines for a chat: no colour, versions included, nothing that needs a wide window."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.report import Report
from pdctl.render.recurrence import seen_text

MAX_LINES = 12
MAX_COLUMNS = 240


def as_short(report: Report) -> str:
    """Return the lines."""
    lines = [*_head(report), *_suspects(report), *_causes(report), *_seen(report), *_excluded(report)]
    steps = report.firm[0].next if report.firm else ()
    lines += [f"next: {step.command}  ({step.risk})" for step in steps[:3]]
    return "\n".join(line[:MAX_COLUMNS] for line in lines[:MAX_LINES])


def _head(report: Report) -> Iterator[str]:
    at = report.captured_at.strftime("%Y-%m-%d %H:%M:%SZ") if report.captured_at else "time unknown"
    what = f"pdctl {report.tool.version}: {report.verdict} {report.deployment}".rstrip()
    yield f"{what}, captured {at}, incident {report.incident_id}"
    yield f"impact {report.impact.scope}: {report.impact.basis}"
    if report.changes:
        newest = report.changes[0]
        when = f" at {newest.at:%H:%M:%SZ}" if newest.at else ""
        yield f"newest change: {newest.instance} {newest.what}{when}"


def _seen(report: Report) -> Iterator[str]:
    for text in seen_text(report):
        yield f"seen {text}"


def _suspects(report: Report) -> Iterator[str]:
    for row in report.suspicions[:3]:
        yield f"suspected {row.code} {row.name}: {row.answer.replace('_', ' ')}: {row.text}"
    rest = ", ".join(f"{row.code} {row.answer.replace('_', ' ')}" for row in report.suspicions[3:])
    if rest:
        yield f"suspected too: {rest}"


def _causes(report: Report) -> Iterator[str]:
    for cause in report.firm[:3]:
        yield f"{cause.code} {cause.name} [{cause.confidence}, {cause.causal_role}] {cause.message}"
    if report.abstains:
        possible = ", ".join(cause.code for cause in report.causes)
        yield "no cause is proven" + (f"; possible: {possible}" if possible else "")
    left_out = [f"accepted {code}" for code in report.suppressed] + [f"hidden {code}" for code in report.hidden]
    if left_out:
        yield f"stands too: {', '.join(left_out)}"


def _excluded(report: Report) -> Iterator[str]:
    telling = [row.code for row in report.ruled_out if row.observation.source.file]
    excluded = ", ".join(telling[:10]) or "nothing with a number"
    yield f"ruled out: {excluded}; not checked: {len(report.not_checked)} of {report.checked}"
