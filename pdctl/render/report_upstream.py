"""A bug report for the authors of an engine or router: what runs, what was seen, what proves it, what it is not."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.report import Cause, Report
from pdctl.evidence.model import Evidence, InstanceEvidence

_MOST_EXCLUDED = 12


def as_upstream(report: Report, evidence: Evidence) -> str:
    """Return the report. Give it evidence that may be shared: it quotes log lines, flags and stacks as they stand."""
    first = report.firm[0] if report.firm else None
    excluded = [row for row in report.ruled_out if row.observation.source.file]
    lines = [
        f"# {first.message if first else report.impact.basis}",
        "",
        f"Verdict of pdctl {report.tool.version}: {report.verdict}. Names and addresses are pseudonyms.",
        "",
        "## Environment",
        "",
        *[line for item in evidence.instances for line in _environment(item)],
        "",
        "## What happens",
        "",
        *[f"- {row.text}" for row in report.symptoms],
        "",
        "## Why",
        *(_cause(first) if first else ["", "No cause is proven."]),
    ]
    for title, rows in (
        ("Where the ranks stand", list(_ranks(report))),
        ("When", [f"- {row.at.isoformat()} {row.instance}: {row.what}" for row in report.timeline]),
        ("What it is not", [f"- {row.reason}" for row in excluded[:_MOST_EXCLUDED]]),
        ("What we do not know", [f"- {row.code}: {row.reason}" for row in report.not_checked[:_MOST_EXCLUDED]]),
    ):
        if rows:
            lines += ["", f"## {title}", "", *rows]
    return "\n".join(lines) + "\n"


def _environment(item: InstanceEvidence) -> Iterator[str]:
    source = item.source
    sizes = ", ".join(f"{name} {size}" for name, size in (("tp", item.tp), ("pp", item.pp), ("dp", item.dp)) if size)
    version = (source.version if source else None) or item.version or "version unknown"
    commit = f" ({source.commit})" if source and source.commit else ""
    transfer = f"KV over {item.transfer}" if item.transfer else ""
    parts = (f"{item.dialect or 'engine'} {version}{commit}", sizes, transfer)
    yield f"- **{item.name}** ({item.role or 'role unknown'}): {', '.join(part for part in parts if part)}"
    if source and source.model:
        yield f"  - model `{source.model}`"
    if source and source.flags:
        yield f"  - flags `{' '.join(source.flags)}`"
    for name, value in (source.env if source else {}).items():
        yield f"  - `{name}={value}`"
    for name, is_there in (source.fixes if source else {}).items():
        yield f"  - fix `{name}` in the running code: {'yes' if is_there else 'no'}"


def _cause(cause: Cause) -> list[str]:
    lines = ["", f"{cause.message} ({cause.confidence})", ""]
    for row in cause.observations:
        place = f"{row.source.file}:{row.source.line}" if row.source.line else row.source.file
        lines.append(f"- {row.weight}: {row.text}" + (f" (`{place}`)" if place else ""))
    return lines


def _ranks(report: Report) -> Iterator[str]:
    if not report.rank_stacks:
        return
    yield "```"
    for row in report.rank_stacks:
        head = row.instance if row.depth == 0 else "  " * row.depth
        yield f"{head} [{', '.join(row.ranks)}] {' > '.join(row.path)}"
    yield "```"
