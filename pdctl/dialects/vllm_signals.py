"""What vLLM servers measure. Held against the releases 0.9.0 (the first with NixlConnector) to 0.33.0, measured on 0.32.0 (CPU)."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

from pdctl.dialects.signals import Batch, Counter, Gauge, Series, SignalTable
from pdctl.dialects.vllm_lines import PATTERNS

_LOGGERS = "v1/metrics/loggers.py"
_NIXL = "kv_connector/v1/nixl"
_POSTS = {"method": ("POST",)}

SERIES = (
    Series(Gauge.RUNNING, "vllm:num_requests_running", source=_LOGGERS),
    Series(Gauge.WAITING, "vllm:num_requests_waiting", source=_LOGGERS),
    Series(
        Gauge.TRANSFER,
        "vllm:num_requests_kv_fetch_by_stage",
        {"stage": ("waiting_to_start", "in_progress")},
        versions="0.32.0-",
        source=_LOGGERS,
    ),
    Series(
        Gauge.FETCH_DONE,
        "vllm:num_requests_kv_fetch_by_stage",
        {"stage": ("completed_waiting",)},
        versions="0.32.0-",
        source=_LOGGERS,
    ),
    Series(Gauge.KV_USAGE, "vllm:kv_cache_usage_perc", versions="0.9.2-", source=_LOGGERS),
    Series(Gauge.KV_USAGE, "vllm:gpu_cache_usage_perc", versions="-0.11.2", source=_LOGGERS),
    Series(Counter.STEPS, "vllm:iteration_tokens_total_count", source=_LOGGERS),
    Series(Counter.PREFILL_TOKENS, "vllm:prompt_tokens_total", source=_LOGGERS),
    Series(Counter.DECODE_TOKENS, "vllm:generation_tokens_total", source=_LOGGERS),
    Series(
        Counter.REQUESTS_DONE,
        "vllm:request_success_total",
        {"finished_reason": ("stop", "length", "repetition")},
        source=_LOGGERS,
    ),
    Series(
        Counter.REQUESTS_FAILED,
        "vllm:request_success_total",
        {"finished_reason": ("error",)},
        source=_LOGGERS,
    ),
    Series(Counter.ABORTS, "vllm:request_success_total", {"finished_reason": ("abort",)}, source=_LOGGERS),
    Series(Counter.FIRST_TOKENS, "vllm:time_to_first_token_seconds_count", source=_LOGGERS),
    Series(Counter.FIRST_TOKEN_SECONDS, "vllm:time_to_first_token_seconds_sum", source=_LOGGERS),
    Series(
        Counter.REQUESTS_STARTED,
        "http_requests_total",
        {"handler": ("/v1/completions", "/v1/chat/completions")},
        source="prometheus-fastapi-instrumentator",
    ),
    Series(
        Counter.TRANSFERS_DONE, "vllm:nixl_xfer_time_seconds_count", versions="0.11.1-", source=f"{_NIXL}/metrics.py"
    ),
    Series(
        Counter.TRANSFERS_DONE,
        "vllm:mooncake_xfer_time_seconds_count",
        versions="0.33.0-",
        source="mooncake_connector.py",
    ),
    Series(Counter.KV_BYTES, "vllm:nixl_bytes_transferred_sum", versions="0.11.1-", source=f"{_NIXL}/metrics.py"),
    Series(
        Counter.TRANSFERS_FAILED,
        "vllm:nixl_num_failed_transfers_total",
        versions="0.11.1-",
        source=f"{_NIXL}/metrics.py",
    ),
    Series(
        Counter.TRANSFERS_FAILED,
        "vllm:mooncake_num_failed_recvs_total",
        role="decode",
        versions="0.33.0-",
        source="mooncake_connector.py",
    ),
    Series(
        Counter.TRANSFERS_FAILED,
        "vllm:mooncake_num_failed_transfers_total",
        versions="0.33.0-",
        source="mooncake_connector.py",
    ),
    Series(Counter.KV_EXPIRED, "vllm:nixl_num_kv_expired_reqs_total", versions="0.15.0-", source=f"{_NIXL}/metrics.py"),
    Series(
        Counter.LATE_READS,
        "vllm:nixl_num_notifications_after_expiry_total",
        versions="0.32.0-",
        source=f"{_NIXL}/metrics.py",
    ),
    Series(Counter.EXTERNAL_QUERIES, "vllm:external_prefix_cache_queries_total", versions="0.11.1-", source=_LOGGERS),
    Series(Counter.EXTERNAL_HITS, "vllm:external_prefix_cache_hits_total", versions="0.11.1-", source=_LOGGERS),
    Series(
        Counter.EXTERNAL_TOKENS,
        "vllm:prompt_tokens_by_source_total",
        {"source": ("external_kv_transfer",)},
        versions="0.16.0-",
        source=_LOGGERS,
    ),
    Series(Counter.RETRACTIONS, "vllm:num_preemptions_total", source=_LOGGERS),
)

_STATS = (
    r"Engine \d+: .*?Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs(?:, Deferred: \d+ reqs)?"
    r"(?:, KV fetch: (?P<fetch0>\d+) waiting to start, (?P<fetch1>\d+) in progress, (?P<fetch_done>\d+) completed waiting)?"
    r"(?:.*?KV cache usage: (?P<kv_percent>[\d.]+)%)?"
)
BATCHES = (
    Batch(
        _STATS,
        "Running: ",
        {
            "running": Gauge.RUNNING,
            "waiting": Gauge.WAITING,
            "fetch1": Gauge.TRANSFER,
            "fetch_done": Gauge.FETCH_DONE,
            "kv_percent": Gauge.KV_USAGE,
        },
        is_pairs=False,
        is_step=False,
        source=f"{_LOGGERS}; every 10 s while something runs or waits",
    ),
)

VLLM_SIGNALS = SignalTable(dialect="vllm", series=SERIES, patterns=PATTERNS, batches=BATCHES)
