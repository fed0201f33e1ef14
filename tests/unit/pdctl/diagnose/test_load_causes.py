"""What queues and pools show: full, overloaded, leaking, healthy.

One small incident a mechanism: what it names, and that its look-alike is not named.
"""

# ruff: noqa: E501 - lines of logs and files stand as engines print them.
from __future__ import annotations

from tests.unit.pdctl.diagnose import incident as make


def _vllm(**values: float) -> str:
    names = {
        "running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting", "kv": "vllm:kv_cache_usage_perc",
        "steps": "vllm:iteration_tokens_total_count", "tokens": "vllm:generation_tokens_total",
        "done": 'vllm:request_success_total{finished_reason="stop"}',
        "landed": 'vllm:num_requests_kv_fetch_by_stage{stage="completed_waiting"}',
    }  # fmt: skip
    return "".join(f"{names[key]} {value}\n" for key, value in values.items())


def test_a_full_pool_that_nothing_frees() -> None:
    """KV is full, nothing runs, requests wait, no step happens."""
    scrape = _vllm(running=0, waiting=30, kv=0.98, steps=500, tokens=9000, done=70)
    report = make.report(make.instance("d", "decode", "vllm"), d__metrics_txt=scrape, d__metrics_prev_txt=scrape)
    assert (make.first(report), report.verdict) == ("PD0401", "wedged")


def test_landed_requests_that_are_never_scheduled() -> None:
    """Their KV is there, nothing runs, no step happens: the scheduler does not look."""
    scrape = _vllm(running=0, waiting=9, kv=0.6, steps=500, tokens=9000, done=70, landed=9)
    report = make.report(make.instance("d", "decode", "vllm"), d__metrics_txt=scrape, d__metrics_prev_txt=scrape)
    assert make.first(report) == "PD0504"


def test_long_queues_that_move_are_load() -> None:
    """Everything waits and everything is served: scale, do not restart."""
    log = "[2026-06-19 14:29:50 TP0] Decode batch, #running-req: 60, #queue-req: 30, gen throughput (token/s): 900.0\n"
    report = make.report(
        make.instance("e", "unified", "vllm"),
        e__metrics_txt=_vllm(running=60, waiting=30, kv=0.97, steps=900, tokens=99000, done=170),
        e__metrics_prev_txt=_vllm(running=60, waiting=28, kv=0.97, steps=500, tokens=9000, done=70),
        e__log_txt=log,
    )
    assert (make.first(report), report.verdict) == ("PD0901", "not_a_wedge")


def test_requests_that_no_worker_has() -> None:
    """The frontend waits for a dozen, the workers hold none."""
    topology = make.instance("f", "router", "dynamo", host=9) + make.instance("d", "decode", "dynamo", host=2)
    front = 'dynamo_frontend_inflight_requests 12\ndynamo_frontend_requests_total{status="success"} 500\n'
    worker = 'dynamo_component_inflight_requests{dynamo_endpoint="generate"} 0\ndynamo_component_requests_total{dynamo_endpoint="generate"} 500\n'
    report = make.report(
        topology,
        f__metrics_txt=front,
        f__metrics_prev_txt=front,
        d__metrics_txt=worker,
        d__metrics_prev_txt=worker,
    )
    assert (make.first(report), report.verdict) == ("PD0805", "wedged")


def test_kv_in_use_without_a_request_is_a_leak() -> None:
    """Two samples of an idle engine with pages in use."""
    scrape = (
        "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:num_used_tokens 16384\n"
        "sglang:num_requests_total 50\nsglang:num_aborted_requests_total 9\n"
    )
    report = make.report(
        make.instance("e", "unified"),
        e__metrics_txt=scrape,
        e__metrics_prev_txt=scrape,
        e__http_toml=make.HEALTHY_GET,
    )
    assert (make.first(report), report.verdict) == ("PD0403", "degraded")


def test_an_idle_system_with_a_passed_probe_is_healthy() -> None:
    """No traffic is no trouble, once the path is proven."""
    scrape = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:num_requests_total 50\n"
    files = {"e__metrics_txt": scrape, "e__metrics_prev_txt": scrape}
    assert make.report(make.instance("e", "unified"), **files, probe_toml=make.PROBE_PASSED).verdict == "healthy"
    assert make.report(make.instance("e", "unified"), **files).verdict == "unknown"
