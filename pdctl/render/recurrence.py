"""One line on what was seen before: the same thing, or the same symptom of another cause."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.diagnose.report import Report


def seen_text(report: Report) -> Iterator[str]:
    """Yield a line for earlier incidents of the same cause, and one for those that looked alike and were not."""
    same = [row for row in report.seen_before if row.same_cause]
    other = [row for row in report.seen_before if not row.same_cause and row.codes]
    unknown = [row for row in report.seen_before if not row.same_cause and not row.codes]
    if same:
        yield f"{len(same)}x before with the same cause, last {same[0].at:%Y-%m-%d %H:%MZ}"
    if other:
        codes = ", ".join(dict.fromkeys(code for row in other for code in row.codes[:1]))
        yield f"same symptom, other cause: {codes} on {other[0].at:%Y-%m-%d %H:%MZ}"
    if unknown and not same and not other:
        yield f"{len(unknown)}x before, last {unknown[0].at:%Y-%m-%d %H:%MZ}; no cause was proven then"
