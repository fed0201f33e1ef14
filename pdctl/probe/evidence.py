"""Probe results -> `probe.toml` of an incident, the form in which the diagnosis reads them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pdctl.evidence import toml_text
from pdctl.probe.report import Output, ProbeResult, Verdict

PROBE_FILE = "probe.toml"
_FIELDS = ("via", "status", "took_ms", "timeout_ms", "id", "ttft_ms", "kv_bytes", "cached_tokens")


def probe_document(results: Iterable[ProbeResult]) -> bytes:
    """Return the file; the newest result is the last row."""
    return toml_text.document({}, {"probe": [_row(result) for result in results]})


def _row(result: ProbeResult) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(result, name) for name in _FIELDS}
    pair = f"{result.pair[0]}/{result.pair[1]}" if result.pair else None
    at = datetime.fromtimestamp(result.at, UTC)
    stage = result.stage.value if result.stage else None
    return {"at": at, **row, "error": _error(result), "stage": stage, "output": result.output.value, "pair": pair}


def _error(result: ProbeResult) -> str | None:
    """Return how it ended; `not_proven` where a text of status 200 is not wrong, and proves nothing all the same."""
    is_silent = result.error is None and result.status == 200 and result.output is not Output.GARBLED
    return result.verdict.value if is_silent and result.verdict is Verdict.NOT_PROVEN else result.error
