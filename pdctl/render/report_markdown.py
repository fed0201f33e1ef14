"""The report for a ticket."""

from __future__ import annotations

from pdctl.diagnose.report import Cause, Report


def as_markdown(report: Report) -> str:
    """Return a ticket: verdict, causes with their evidence, what was ruled out, what happened when, what to do."""
    at = report.captured_at.isoformat() if report.captured_at else "unknown"
    lines = [
        f"# {report.verdict}: {report.impact.basis}",
        "",
        f"Captured {at}, incident `{report.incident_id}`, pdctl {report.tool.version}. Impact: {report.impact.scope}.",
    ]
    if report.suspicions:
        lines += ["", "## Suspected", ""]
        lines += [f"- `{row.code}` {row.name}: {row.answer.replace('_', ' ')}. {row.text}" for row in report.suspicions]
    lines += ["", "## Causes"]
    lines += [line for cause in report.firm for line in _cause(cause)] or ["", "None is proven."]
    possible = [cause for cause in report.causes if cause.confidence == "hypothesis"]
    if possible:
        lines += [
            "",
            "## Possible, not proven",
            "",
            *[f"- `{cause.code}` {cause.message}" for cause in possible],
        ]
    if report.suppressed or report.hidden:
        lines += ["", "## Stands too", ""]
        lines += [f"- `{code}` accepted" for code in report.suppressed]
        lines += [f"- `{code}` left out of this report" for code in report.hidden]
    if report.seen_before:
        lines += ["", "## Seen before", ""]
        lines += [
            f"- {row.at.isoformat()} incident `{row.incident_id}` ({row.verdict}): {', '.join(row.codes) or 'no cause'}"
            for row in report.seen_before
        ]
    if report.undecided:
        lines += ["", "## Undecided", ""]
        lines += [f"- {', '.join(row.codes)}: {row.separate_by.text}" for row in report.undecided]
    lines += ["", "## Ruled out", "", *[f"- `{row.code}` {row.reason}" for row in report.ruled_out]]
    lines += [
        "",
        "## Time line",
        "",
        *[f"- {row.at.isoformat()} {row.instance}: {row.what}" for row in report.timeline],
    ]
    lines += [
        "",
        "## Collected",
        "",
        *[f"- {row.instance} {row.name}: {row.status}" for row in report.collectors if row.status != "absent"],
    ]
    return "\n".join(lines) + "\n"


def _cause(cause: Cause) -> list[str]:
    lines = [
        "",
        f"### {cause.code} {cause.name} ({cause.confidence}, {cause.causal_role})",
        "",
        cause.message,
        "",
    ]
    for row in cause.observations:
        source = row.source
        where = f"{source.file}:{source.line}" if source.line else f"{source.file} {source.pointer or ''}".strip()
        lines.append(f"- {row.weight}: {row.text}" + (f" (`{where}`)" if where else ""))
    if cause.next:
        lines += [
            "",
            "Next:",
            "",
            *[f"1. {step.text}: `{step.command}` ({step.risk})" for step in cause.next],
        ]
    return lines
