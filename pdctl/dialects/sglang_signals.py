"""What SGLang workers measure. Read in the releases 0.4.7.post1 to 0.5.23 and the threads that are named."""

from __future__ import annotations

from pdctl.dialects.sglang_lines import PATTERNS
from pdctl.dialects.signals import Batch, Counter, Gauge, Series, SignalTable

_METRICS = "observability/metrics_collector.py"
_WORK = (Counter.STEPS, Counter.PREFILL_TOKENS, Counter.DECODE_TOKENS)
_GENERATING = ("/generate", "/v1/chat/completions", "/v1/completions")


def _batch_gauge(signal: Gauge, name: str, versions: str = "", role: str = "") -> Series:
    return Series(signal, name, role=role, is_batch_written=True, versions=versions, source=_METRICS)


def _counter(signal: Counter, name: str, versions: str = "", role: str = "", **where: tuple[str, ...]) -> Series:
    # From 0.5.3 on /health is a request of one token that passes no transfer: what the scheduler counts, it moves.
    return Series(signal, name, where, role, counts_polls=signal in _WORK, versions=versions, source=_METRICS)


SERIES = (
    _batch_gauge(Gauge.RUNNING, "sglang:num_running_reqs"),
    _batch_gauge(Gauge.WAITING, "sglang:num_queue_reqs"),
    _batch_gauge(Gauge.BOOTSTRAP, "sglang:num_prefill_bootstrap_queue_reqs", "0.5.12-", "prefill"),
    _batch_gauge(Gauge.BOOTSTRAP, "sglang:num_prefill_prealloc_queue_reqs", "0.4.7-0.5.9", "prefill"),
    _batch_gauge(Gauge.INFLIGHT, "sglang:num_prefill_inflight_queue_reqs", "0.5.2-", "prefill"),
    _batch_gauge(Gauge.INFLIGHT, "sglang:num_prefill_infight_queue_reqs", "0.4.7-0.5.1", "prefill"),
    _batch_gauge(Gauge.PREALLOC, "sglang:num_decode_prealloc_queue_reqs", role="decode"),
    _batch_gauge(Gauge.TRANSFER, "sglang:num_decode_transfer_queue_reqs", role="decode"),
    _batch_gauge(Gauge.RETRACTED, "sglang:num_retracted_reqs", "0.5.2-"),
    _batch_gauge(Gauge.KV_USAGE, "sglang:full_token_usage", "0.5.12-"),
    _batch_gauge(Gauge.KV_USAGE, "sglang:token_usage"),
    _batch_gauge(Gauge.KV_USED_TOKENS, "sglang:num_used_tokens"),
    _batch_gauge(Gauge.KV_TOTAL_TOKENS, "sglang:max_total_num_tokens", "0.5.6-"),
    Series(
        Gauge.HTTP_ACTIVE,
        "sglang:http_requests_active",
        {"endpoint": _GENERATING},
        versions="0.5.9-",
        source="http_request_metrics.py",
    ),
    _counter(Counter.PREFILL_TOKENS, "sglang:realtime_tokens_total", "0.5.7-", mode=("prefill_compute",)),
    _counter(Counter.DECODE_TOKENS, "sglang:realtime_tokens_total", "0.5.7-", mode=("decode",)),
    _counter(Counter.PREFILL_TOKENS, "sglang:prompt_tokens_total", role="prefill"),
    _counter(Counter.DECODE_TOKENS, "sglang:generation_tokens_total"),
    _counter(Counter.STEPS, "sglang:cuda_graph_passes_total", "0.5.7-"),
    _counter(Counter.STEPS, "sglang:forward_execution_seconds_total", "0.5.12-"),
    _counter(Counter.REQUESTS_DONE, "sglang:num_requests_total"),
    _counter(Counter.REQUESTS_DONE, "sglang:e2e_request_latency_seconds_count"),
    _counter(Counter.REQUESTS_STARTED, "sglang:http_requests_total", "0.5.7-", endpoint=_GENERATING),
    _counter(Counter.ABORTS, "sglang:num_aborted_requests_total"),
    _counter(Counter.ALLOCATIONS, "sglang:kv_transfer_alloc_ms_count", "0.5.6-", "decode"),
    _counter(Counter.TRANSFERS_DONE, "sglang:kv_transfer_latency_ms_count", "0.5.2-", "prefill"),
    _counter(
        Counter.TRANSFERS_DONE,
        "sglang:per_stage_req_latency_seconds_count",
        "0.5.3-",
        "decode",
        stage=("decode_transferred",),
    ),
    _counter(Counter.TRANSFERS_FAILED, "sglang:num_transfer_failed_reqs_total"),
    _counter(Counter.BOOTSTRAPS_FAILED, "sglang:num_bootstrap_failed_reqs_total"),
    _counter(Counter.RETRACTIONS, "sglang:num_retracted_requests_total", "0.5.7-"),
    _counter(Counter.FIRST_TOKENS, "sglang:time_to_first_token_seconds_count"),
    _counter(Counter.FIRST_TOKEN_SECONDS, "sglang:time_to_first_token_seconds_sum"),
)

# Keys vary in order and number between versions: parsed as pairs.
BATCHES = (
    Batch(
        r"Prefill batch",
        "Prefill batch",
        {
            "#running-req": Gauge.RUNNING,
            "#queue-req": Gauge.WAITING,
            "#bootstrap-req": Gauge.BOOTSTRAP,
            "#prealloc-req": Gauge.BOOTSTRAP,
            "#unbootstrapped-req": Gauge.BOOTSTRAP,
            "#inflight-req": Gauge.INFLIGHT,
            "#transferring-req": Gauge.INFLIGHT,
            "token usage": Gauge.KV_USAGE,
            "full token usage": Gauge.KV_USAGE,
        },
        source="managers/scheduler_metrics_mixin.py; #prealloc-req on this line is the bootstrap queue (0.5.3-0.5.9)",
    ),
    Batch(
        r"Decode batch",
        "Decode batch",
        {
            "#running-req": Gauge.RUNNING,
            "#queue-req": Gauge.WAITING,
            "#prealloc-req": Gauge.PREALLOC,
            "#transfer-req": Gauge.TRANSFER,
            "#retracted-req": Gauge.RETRACTED,
            "token usage": Gauge.KV_USAGE,
            "full token usage": Gauge.KV_USAGE,
        },
        source="managers/scheduler_metrics_mixin.py; every 40th decode step",
    ),
)

SGLANG_SIGNALS = SignalTable(
    dialect="sglang",
    series=SERIES,
    patterns=PATTERNS,
    batches=BATCHES,
    loads={
        "loads.num_running_reqs": Gauge.RUNNING,
        "loads.num_waiting_reqs": Gauge.WAITING,
        "loads.token_usage": Gauge.KV_USAGE,
        "loads.num_used_tokens": Gauge.KV_USED_TOKENS,
        "loads.max_total_num_tokens": Gauge.KV_TOTAL_TOKENS,
        "loads.disaggregation.prefill_bootstrap_queue_reqs": Gauge.BOOTSTRAP,
        "loads.disaggregation.prefill_inflight_queue_reqs": Gauge.INFLIGHT,
        "loads.disaggregation.decode_prealloc_queue_reqs": Gauge.PREALLOC,
        "loads.disaggregation.decode_transfer_queue_reqs": Gauge.TRANSFER,
    },
)
