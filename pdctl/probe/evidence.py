"""Probe results -> `probe.toml` of an incident, the form in which the diagnosis reads them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pdctl.evidence import toml_text
from pdctl.probe.report import ProbeResult

PROBE_FILE = "probe.toml"
_FIELDS = ("via", "status", "took_ms", "timeout_ms", "error", "id", "ttft_ms", "kv_bytes", "cached_tokens")


def probe_document(results: Iterable[ProbeResult]) -> bytes:
    """Return the file; the newest result is the last row."""
    return toml_text.document({}, {"probe": [_row(result) for result in results]})


def _row(result: ProbeResult) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(result, name) for name in _FIELDS}
    pair = f"{result.pair[0]}/{result.pair[1]}" if result.pair else None
    at = datetime.fromtimestamp(result.at, UTC)
    stage = result.stage.value if result.stage else None
    return {"at": at, **row, "stage": stage, "output": result.output.value, "pair": pair}
