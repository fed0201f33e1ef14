"""Levels: which of an instance's sources counts, and what is added up."""

from __future__ import annotations

import json

import pytest

from pdctl.diagnose.case import Case
from pdctl.diagnose.predicates import kv_usage, stalled
from pdctl.diagnose.verdict import Verdict
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Gauge
from tests.unit.pdctl.diagnose import incident as make

EMPTY = (
    'sglang:num_prefill_bootstrap_queue_reqs{tp_rank="0"} 0\nsglang:num_prefill_inflight_queue_reqs{tp_rank="0"} 0\n'
    "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:token_usage 0.02\n"
    'sglang:realtime_tokens_total{mode="prefill_compute"} 500\nsglang:cuda_graph_passes_total 70\n'
)


def loads(bootstrap: int, usage: float = 0.5, at: float = 1.0) -> str:
    """Return what /v1/loads of one prefill rank answers."""
    queues = {"prefill_bootstrap_queue_reqs": bootstrap, "prefill_inflight_queue_reqs": 0}
    return json.dumps({"loads": [{"token_usage": usage, "timestamp": at, "disaggregation": queues}]})


def case(before: str = EMPTY, now: str = EMPTY, **files: str) -> Case:
    """Return the case of a prefill with two scrapes."""
    return Case(make.evidence(make.PAIR, p__metrics_prev_txt=before, p__metrics_txt=now, **files))


def prefill(of: Case) -> InstanceView:
    """Return the view of the prefill."""
    return of.prefills[0]


def test_a_frozen_gauge_does_not_hide_the_load_report() -> None:
    """A loop that turns without a batch writes no gauges: what the load report lists in both samples stalls."""
    files = {"p__loads_json": loads(3, at=2.0), "p__loads_prev_json": loads(3)}
    report = make.report(
        make.PAIR, p__metrics_txt=EMPTY, p__metrics_prev_txt=EMPTY, p__http_toml=make.HEALTHY_GET, **files
    )
    assert report.verdict is Verdict.WEDGED


def test_what_the_earlier_report_did_not_list_came_since() -> None:
    """Requests that only the newer report lists have waited for no known time."""
    of = case(p__loads_json=loads(3, at=2.0), p__loads_prev_json=loads(0))
    unit = of.unit(prefill(of), Gauge.BOOTSTRAP)
    assert unit is not None and (unit.outstanding, unit.span_s) == (3.0, None)


def test_memory_of_the_load_report_counts_where_the_gauge_is_written_on_a_batch() -> None:
    """KV use is what the load report says now, not what the last batch wrote."""
    of = case(p__loads_json=loads(0, usage=0.97))
    assert kv_usage(prefill(of)) is not None and prefill(of).gauge(Gauge.KV_USAGE).value == 0.97  # type: ignore[union-attr]


def test_an_old_report_beside_moving_counters_decides_nothing() -> None:
    """A report of the same time in both samples is frozen; gauges of an engine that steps are not."""
    moved = EMPTY.replace("total 70", "total 90")
    of = case(now=moved, p__loads_json=loads(3), p__loads_prev_json=loads(3))
    reading = prefill(of).gauge(Gauge.BOOTSTRAP)
    assert reading is not None and (reading.value, reading.is_frozen) == (0.0, False)


@pytest.mark.parametrize(("steps", "is_known"), [(70, False), (90, True)])
def test_a_frozen_gauge_denies_nothing(steps: int, is_known: bool) -> None:
    """That a queue is empty is unknown where its gauge was not written since, and true where it was."""
    of = case(now=EMPTY.replace("total 70", f"total {steps}"))
    answer = stalled(of, prefill(of), Gauge.BOOTSTRAP)
    assert (answer.is_true, answer.is_false) == (False, is_known)


def series(name: str, *rows: tuple[str, float]) -> str:
    """Return samples of one series."""
    return "".join(f"{name}{{{labels}}} {value}\n" for labels, value in rows)


QUEUE = "sglang:num_prefill_bootstrap_queue_reqs"


@pytest.mark.parametrize(
    ("scrape", "gauge", "value"),
    [
        (series(QUEUE, ('tp_rank="0",pp_rank="0"', 3), ('tp_rank="1",pp_rank="0"', 3)), Gauge.BOOTSTRAP, 3),
        (series(QUEUE, ('tp_rank="0",pp_rank="0"', 3), ('tp_rank="0",pp_rank="1"', 2)), Gauge.BOOTSTRAP, 3),
        (series(QUEUE, ('dp_rank="0",tp_rank="0"', 3), ('dp_rank="1",tp_rank="1"', 2)), Gauge.BOOTSTRAP, 5),
        (series(QUEUE, ('priority=""', 5), ('priority="0"', 2), ('priority="9"', 3)), Gauge.BOOTSTRAP, 5),
        (series(QUEUE, ('priority="0"', 2), ('priority="9"', 3)), Gauge.BOOTSTRAP, 5),
        (series("vllm:num_requests_running", ('engine="0"', 4), ('engine="1"', 6)), Gauge.RUNNING, 10),
        (series("sglang:token_usage", ('dp_rank="0"', 0.4), ('dp_rank="1"', 0.7)), Gauge.KV_USAGE, 0.7),
    ],
)
def test_what_several_ranks_tell_of_the_same_requests_counts_once(scrape: str, gauge: Gauge, value: float) -> None:
    """Ranks of one replica and the parts of a whole are no more requests; replicas and engines are."""
    reading = prefill(case(before=scrape, now=scrape)).gauge(gauge)
    assert reading is not None and reading.value == value


def test_use_in_the_load_report_is_that_of_the_fullest_rank() -> None:
    """Requests of data-parallel ranks add up, shares of memory do not."""
    report = json.loads(loads(3, usage=0.6))
    report["loads"] += json.loads(loads(2, usage=0.9))["loads"]
    view = prefill(case(p__loads_json=json.dumps(report)))
    usage, queue = view.gauge(Gauge.KV_USAGE), view.gauge(Gauge.BOOTSTRAP)
    assert usage is not None and queue is not None
    assert (usage.value, queue.value) == (0.9, 5.0)
