"""What vLLM servers say. Read in 0.33.0, measured on 0.32.0 (CPU); older names where a thread shows them."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

from pdctl.dialects.signals import Batch, Counter, Event, Gauge, Pattern, Series, SignalTable

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
        source=_LOGGERS,
    ),
    Series(
        Gauge.FETCH_DONE,
        "vllm:num_requests_kv_fetch_by_stage",
        {"stage": ("completed_waiting",)},
        source=_LOGGERS,
    ),
    Series(Gauge.KV_USAGE, "vllm:kv_cache_usage_perc", source=_LOGGERS),
    Series(Gauge.KV_USAGE, "vllm:gpu_cache_usage_perc", versions="-0.9", source=_LOGGERS),
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
    ),
    Series(Counter.TRANSFERS_DONE, "vllm:nixl_xfer_time_seconds_count", source=f"{_NIXL}/metrics.py"),
    Series(Counter.TRANSFERS_DONE, "vllm:mooncake_xfer_time_seconds_count", source="mooncake_connector.py"),
    Series(Counter.KV_BYTES, "vllm:nixl_bytes_transferred_sum", source=f"{_NIXL}/metrics.py"),
    Series(Counter.TRANSFERS_FAILED, "vllm:nixl_num_failed_transfers_total", source=f"{_NIXL}/metrics.py"),
    Series(
        Counter.TRANSFERS_FAILED,
        "vllm:mooncake_num_failed_recvs_total",
        role="decode",
        source="mooncake_connector.py",
    ),
    Series(Counter.TRANSFERS_FAILED, "vllm:mooncake_num_failed_transfers_total", source="mooncake_connector.py"),
    Series(Counter.KV_EXPIRED, "vllm:nixl_num_kv_expired_reqs_total", source=f"{_NIXL}/metrics.py"),
    Series(
        Counter.LATE_READS,
        "vllm:nixl_num_notifications_after_expiry_total",
        versions="0.33-",
        source=f"{_NIXL}/metrics.py",
    ),
    Series(Counter.EXTERNAL_QUERIES, "vllm:external_prefix_cache_queries_total", source=_LOGGERS),
    Series(Counter.EXTERNAL_HITS, "vllm:external_prefix_cache_hits_total", source=_LOGGERS),
    Series(
        Counter.EXTERNAL_TOKENS,
        "vllm:prompt_tokens_by_source_total",
        {"source": ("external_kv_transfer",)},
        source=_LOGGERS,
    ),
    Series(Counter.RETRACTIONS, "vllm:num_preemptions_total", source=_LOGGERS),
)

PATTERNS = (
    Pattern(
        Event.TRANSFER_FAILED,
        r"NIXL transfer failure: (?P<kind>\w+)(?P<reason>.*)",
        "NIXL transfer failure",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.TRANSFER_FAILED,
        r"pulling kv_caches for .* failed:? ?(?P<reason>.*)",
        "pulling kv_caches",
        source="mooncake_connector.py",
    ),
    Pattern(
        Event.TRANSFER_FAILED,
        r"Failing \d+ request\(s\) due to KV load failure(?P<reason>)",
        "due to KV load failure",
        source="v1/core/sched/scheduler.py",
    ),
    Pattern(
        Event.LEASE_EXPIRED,
        r"Releasing expired KV blocks for request (?P<rid>\S+) which were retrieved by (?P<readers>\d+)",
        "Releasing expired KV",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.LATE_READ,
        r"Potentially invalid KV blocks for unrecognized request (?P<rid>\S+)",
        "Potentially invalid KV",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.HANDSHAKE_FAILED,
        r"(?:Handshake failed for request|NIXL transfer failure: handshake_(?:setup_)?failed|NIXL handshake failed)",
        "andshake",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.WRONG_PEER,
        r"(?:\w+Error: )?Remote NIXL agent engine ID mismatch\. Expected (?P<expected>[\w-]+),\s*received (?P<got>[\w-]+)",
        "engine ID mismatch. Expected",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.MISMATCH,
        r"(?:\w+Error: )?NIXL (?P<field>compatibility hash) mismatch",
        "compatibility hash mismatch",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.MISMATCH,
        r"(?:\w+Error: )?Failed to decode (?P<field>NixlHandshakePayload)",
        "NixlHandshakePayload",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.MISMATCH,
        r"(?:\w*(?:Error|Exception): )?.{0,160}?(?P<field>[Bb]lock[ _][Ss]ize|[Bb]lock[ _]len|[Pp]age[ _]size)\w*\b.{0,80}(?:must be|does not|doesn't|not divisible|not match|differ|mismatch|unsupported|not supported|!=)",
        "lock",
        source=f"{_NIXL}/base_worker.py _validate_remote_agent_handshake",
    ),
    Pattern(
        Event.MISMATCH,
        r"(?:AssertionError|ValueError|RuntimeError|NotImplementedError): .{0,80}(?P<field>remote_block_size|tp_ratio|kv_cache_layout|remote_tp_size|block_len)",
        "rror: ",
        source=f"{_NIXL}/base_worker.py",
    ),
    Pattern(
        Event.MISMATCH,
        r"KeyError in (?P<field>block_size_ratio)_from_engine_id",
        "block_size_ratio",
        source="kv_connector/utils.py",
    ),
    Pattern(
        Event.STALE_METADATA,
        r"Remote engine at (?P<host>\S+?):(?P<port>\d+) changed from (?P<old>\S+) to (?P<new>\S+)\.",
        "Remote engine at",
        "0.33-",
        f"{_NIXL}",
    ),
    Pattern(
        Event.STALE_METADATA,
        r"Local NIXL metadata for remote engine \S+ was invalidated",
        "was invalidated",
        "0.33-",
        f"{_NIXL}",
    ),
    Pattern(
        Event.TRANSFER_DEADLINE,
        r"registration for request \S+ timed out after (?P<seconds>[\d.]+)s",
        "without a push completion",
        "0.33-",
        f"{_NIXL}",
    ),
    Pattern(
        Event.TRANSFER_DEADLINE,
        r"Request \S+ timed out after (?P<seconds>\d+) seconds without being sent",
        "without being sent",
        source="mooncake_connector.py",
    ),
    Pattern(
        Event.ENGINE_ID,
        r"Initializing NIXL (?:worker|Scheduler) (?P<id>\S+)",
        "Initializing NIXL",
        source=f"{_NIXL}",
    ),
    Pattern(
        Event.ENGINE_DIED,
        r"EngineCore encountered a fatal error",
        "EngineCore encountered",
        source="v1/engine/core.py",
    ),
    Pattern(
        Event.ENGINE_DIED,
        r"(?:vllm\.v1\.engine\.exceptions\.)?EngineDeadError",
        "EngineDeadError",
        source="v1/engine/async_llm.py",
    ),
    Pattern(
        Event.ENGINE_DIED,
        r"AsyncLLM output_handler failed",
        "output_handler failed",
        source="v1/engine/async_llm.py",
    ),
    Pattern(Event.TERMINATED, r"INFO: +Shutting down", "Shutting down", source="uvicorn"),
    Pattern(
        Event.WORKER_SILENT,
        r"No available shared memory broadcast block found in \d+ seconds",
        "shared memory broadcast block",
        source="shm_broadcast.py",
    ),
    Pattern(
        Event.WORKER_SILENT,
        r"(?:\w*Error: )?RPC call to (?P<method>\w+) timed out",
        "RPC call to",
        source="multiproc_executor.py",
    ),
    Pattern(Event.STARTED, r"Initializing a V1 LLM engine", "Initializing a V1", source="v1/engine/core.py"),
    Pattern(Event.STARTED, r"vLLM API server version", "vLLM API server version", source="entrypoints"),
    Pattern(
        Event.LOADING,
        r"Loading safetensors checkpoint shards",
        "Loading safetensors",
        source="weight_utils.py",
    ),
    Pattern(Event.LOADING, r"Starting to load model", "Starting to load model", source="gpu_model_runner.py"),
    Pattern(Event.LOADED, r"(?:Loading weights|Model loading) took", "took", source="default_loader.py"),
    Pattern(Event.COMPILING, r"Compiling (?:kernel|a graph)", "Compiling", source="compilation"),
    Pattern(Event.COMPILING, r"Capturing CUDA graphs?", "Capturing CUDA", source="gpu_model_runner.py"),
    Pattern(
        Event.COMPILING,
        r"(?:Dynamo bytecode transform|torch\.compile takes)",
        "torch.compile",
        source="compilation",
    ),
    Pattern(
        Event.READY,
        r"(?:INFO: +)?Application startup complete",
        "Application startup complete",
        source="uvicorn",
    ),
    Pattern(
        Event.READY,
        r"init engine \(profile, create kv cache",
        "init engine (profile",
        source="v1/engine/core.py",
    ),
    Pattern(
        Event.KV_POOL_SIZE,
        r"GPU KV cache size: (?P<tokens>[\d,]+) tokens",
        "KV cache size",
        source="kv_cache_utils.py",
    ),
    Pattern(
        Event.KV_POOL_SIZE,
        r"CPU KV cache size: (?P<tokens>[\d,]+) tokens",
        "KV cache size",
        source="kv_cache_utils.py",
    ),
    Pattern(Event.CLIENT_GONE, r"(?:Aborted request|Request \S+ aborted)(?P<rid>)", "bort", source="async_llm.py"),
)

_STATS = (
    r"Engine \d+: .*?Running: (?P<running>\d+) reqs?, Waiting: (?P<waiting>\d+) reqs?(?:, Deferred: \d+ reqs?)?"
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
