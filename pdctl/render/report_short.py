"""At most twelve lines for a chat: no colour, versions included, nothing that needs a wide window."""

from __future__ import annotations

from pdctl.diagnose.report import Report

MAX_LINES = 12


def as_short(report: Report) -> str:
    """Return the lines."""
    at = report.captured_at.strftime("%Y-%m-%d %H:%M:%SZ") if report.captured_at else "time unknown"
    lines = [
        f"pdctl {report.tool.version}: {report.verdict} {report.deployment}".rstrip() + f", captured {at}, incident {report.incident_id}",
        f"impact {report.impact.scope}: {report.impact.basis}",
    ]
    if report.changes:
        newest = report.changes[0]
        lines.append(f"newest change: {newest.instance} {newest.what}{f' at {newest.at:%H:%M:%SZ}' if newest.at else ''}")
    for cause in report.firm[:3]:
        lines.append(f"{cause.code} {cause.name} [{cause.confidence}, {cause.causal_role}] {cause.message}")
    if report.abstains:
        lines.append("no cause is proven" + (f"; possible: {', '.join(cause.code for cause in report.causes)}" if report.causes else ""))
    telling = [row.code for row in report.ruled_out if row.observation.source.file]
    lines.append(f"ruled out: {', '.join(telling[:10]) or 'nothing with a number'}; not checked: {len(report.not_checked)} of {report.checked}")
    steps = report.firm[0].next if report.firm else ()
    lines += [f"next: {step.command}  ({step.risk})" for step in steps[:3]]
    return "\n".join(line[:240] for line in lines[:MAX_LINES])
