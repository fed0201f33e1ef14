"""Timeouts that were set: whose number is in seconds, and whose in milliseconds."""

from __future__ import annotations

import pytest

from tests.unit.pdctl.diagnose import incident as make


@pytest.mark.parametrize(
    ("key", "value", "is_named"),
    [
        ("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", "30", True),
        ("KV_TRANSFER_TIMEOUT_MS", "30000", True),
        ("kv_transfer_timeout_ms", "30000", True),
        ("KV_TRANSFER_TIMEOUT_MS", "30", False),
        ("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", "1.2.3", False),
        ("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", "²", False),
    ],
)
def test_a_setting_fits_the_ends_in_its_unit(key: str, value: str, is_named: bool) -> None:
    """Requests end after 30 s; what is no number is no timeout."""
    end = "[2026-06-19 14:29:0{n} TP0] Request cmpl-{n} timed out after 30 seconds without being sent\n"
    step = "[2026-06-19 14:29:55 TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, #queue-req: 0\n"
    source = f'version = "0.33.0"\n[env]\n{key} = "{value}"\n'
    log = "".join(end.format(n=n) for n in range(4)) + step
    report = make.report(make.PAIR, d__log_txt=log, d__source_toml=source)
    [cause] = [row for row in report.causes if row.code == "PD0905"]
    assert any(key in row.text for row in cause.observations) == is_named
