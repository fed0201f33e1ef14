"""Verdict and causes -> exit status. One pure function, whatever the output format."""

from __future__ import annotations

from pdctl.diagnose.report import Report

_LEVELS = ("info", "warning", "error")
WRONG, CANNOT_TELL, WELL = 1, 3, 0


def exit_status(report: Report, fail_on: str = "error") -> int:
    """Return 1 for trouble, 3 for unknown, 0 otherwise, as the report format says."""
    floor = _LEVELS.index(fail_on)
    is_bad = report.verdict in ("wedged", "failing", "degraded")
    if is_bad or any(_LEVELS.index(cause.level) >= floor for cause in report.firm):
        return WRONG
    return CANNOT_TELL if report.verdict == "unknown" else WELL
