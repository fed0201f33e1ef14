"""Two samples that lie close together show a slow step just as a scheduler that stands."""

from __future__ import annotations

import pytest

from tests.unit.pdctl.diagnose import incident

DECODE = incident.instance("d", "decode", "vllm")
STANDS = "vllm:num_requests_running 0\nvllm:num_requests_waiting 1\nvllm:iteration_tokens_total_count 7\n"
LANDED = f'{STANDS}vllm:num_requests_kv_fetch_by_stage{{stage="completed_waiting"}} 1\n'
FULL = f"{STANDS}vllm:kv_cache_usage_perc 0.997\n"


@pytest.mark.parametrize(("scrape", "code"), [(LANDED, "PD0504"), (FULL, "PD0401")])
@pytest.mark.parametrize(("began", "is_named"), [("14:29:58", False), ("14:29:45", True)])
def test_nothing_is_named_before_patience_is_over(
    scrape: str, code: str, began: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy engine on a CPU takes seconds a step: two seconds without one accuse nobody, fifteen do."""
    monkeypatch.setattr(incident, "BEFORE", f"2026-06-19T{began}Z")
    report = incident.report(DECODE, d__metrics_prev_txt=scrape, d__metrics_txt=scrape)
    assert [cause.code for cause in report.firm] == ([code] if is_named else [])
