"""The time line: from logs, recorders and kept series, in the order of time."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec

from pdctl.diagnose.case import Case
from pdctl.diagnose.timeline import timeline_of
from pdctl.evidence.model import Evidence
from pdctl.evidence.traces import traces
from tests.unit.pdctl.diagnose import incident as make

_END = datetime(2026, 6, 19, 14, 30, tzinfo=UTC).timestamp()


def _said(evidence: Evidence) -> list[tuple[str, str, str]]:
    return [(f"{item.at:%H:%M:%S}", item.instance, item.what) for item in timeline_of(Case(evidence))]


def _with_history(name: str, *values: float) -> Evidence:
    """Return evidence whose prefill has one kept series, a point a minute up to the capture."""
    points = [[_END - 60 * (len(values) - 1 - index), str(value)] for index, value in enumerate(values)]
    history = {"series": [{"metric": {"__name__": name}, "values": points}]}
    made, _ = traces(json.dumps(history).encode(), "p/history.json")
    evidence = make.evidence(make.PAIR)
    first, *rest = evidence.instances
    return msgspec.structs.replace(evidence, instances=(msgspec.structs.replace(first, history=made), *rest))


def test_starts_bursts_and_last_steps_of_both_sides_stand_in_order() -> None:
    """What a person puts together by hand at night."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "S"\nstarted_at = 2026-06-19T08:00:00Z\n'
    step = "[2026-06-19 14:27:30 TP0] Decode batch, #running-req: 4, #queue-req: 0, gen throughput (token/s): 50.0\n"
    said = _said(make.evidence(make.PAIR, p__process_toml=process, p__log_txt=make.abort_burst(), d__log_txt=step))
    assert said == [
        ("08:00:00", "p", "started"),
        ("14:27:20", "p", "6 aborts within a minute"),
        ("14:27:20", "p", "6 failures within a minute"),
        ("14:27:20", "p", "last step printed"),
        ("14:27:30", "d", "last step printed"),
    ]


def test_a_counter_that_stopped_growing_is_told_by_its_kept_series() -> None:
    """Without any log; a Prometheus had written `_` for `:`."""
    assert _said(_with_history("sglang_num_requests_total", 1, 4, 9, 9, 9)) == [
        ("14:28:00", "p", "sglang_num_requests_total grew for the last time")
    ]


def test_a_counter_that_still_grows_is_no_moment() -> None:
    """Nothing happened."""
    assert _said(_with_history("sglang:num_requests_total", 1, 4, 9, 12)) == []


def test_a_queue_that_never_emptied_again_is_told_by_its_kept_series() -> None:
    """From the first sample on in which it held something for good."""
    assert _said(_with_history("sglang:num_queue_reqs", 3, 0, 2, 5, 9)) == [
        ("14:28:00", "p", "sglang:num_queue_reqs has not been empty since")
    ]


def test_a_restart_resets_a_counter_and_is_no_growth() -> None:
    """It falls to zero, and grows from there."""
    assert _said(_with_history("sglang:num_requests_total", 90, 95, 0, 0, 0)) == [
        ("14:27:00", "p", "sglang:num_requests_total grew for the last time")
    ]
