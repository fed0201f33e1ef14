"""The report as one JSON document."""

from __future__ import annotations

import msgspec

from pdctl.diagnose.report import Report


def as_json(report: Report) -> str:
    """Return the document of `formats/report-json.md`, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
