"""What TensorRT-LLM servers say, as far as public threads reach (1.0 to 1.3)."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

from pdctl.dialects.signals import Batch, Counter, Event, Gauge, Pattern, Series, SignalTable

_TRANSCEIVER = "cacheTransceiver.cpp"

PATTERNS = (
    Pattern(
        Event.TRANSFER_FAILED,
        r"(?:\[TensorRT-LLM\]\[\w+\] )?Error occurred during (?:context|generation) transfer for request (?P<rid>\d+):? ?(?P<reason>.*)",
        "Error occurred during",
        source=_TRANSCEIVER,
    ),
    Pattern(
        Event.TRANSFER_FAILED,
        r"Cancelled KV cache transfer for request (?P<rid>\d+):? ?(?P<reason>.*)",
        "Cancelled KV cache",
        source="kv_cache_transceiver.py",
    ),
    Pattern(
        Event.TRANSFER_FAILED,
        r"(?:\[TensorRT-LLM\]\[\w+\] )?.{0,40}storeContextBlocks: Can not find sequence for request (?P<rid>\d+)(?P<reason>)",
        "storeContextBlocks",
        source="kvCacheManager.cpp",
    ),
    Pattern(
        Event.TRANSFER_FAILED,
        r"(?:\[TensorRT-LLM\]\[\w+\] )?.{0,60}(?:[Bb]lock|sequence) .{0,40}not found.{0,60}(?:reuse|tree|send)(?P<reason>)",
        "not found",
        source="kvCacheManager.cpp",
    ),
    Pattern(
        Event.TRANSFER_DEADLINE,
        r"Request (?P<rid>\d+) KV cache transfer exceeded kv_transfer_timeout_ms \((?P<ms>\d+)",
        "kv_transfer_timeout_ms",
        source="py_executor.py",
    ),
    Pattern(
        Event.HELD_BLOCKS,
        r"(?:\[TensorRT-LLM\]\[\w+\] ?)?.{0,40}[Tt]imed out waiting for .{0,40}transfer",
        "imed out waiting",
        source="cacheTransceiver.cpp",
    ),
    Pattern(
        Event.HELD_BLOCKS,
        r".{0,120}?(?:[Tt]erminating|[Tt]imed? ?out|timeout).{0,60}(?:context|ctx|gen(?:eration)?)? ?(?:request|transfer).{0,80}(?:KV|kv|cache|transfer)",
        "ransfer",
        source="py_executor.py",
    ),
    Pattern(
        Event.KV_POOL_SIZE,
        r".{0,80}?max_tokens(?:InPagedKvCache)?[=: ]+(?P<tokens>\d+)",
        "max_tokens",
        source="kvCacheManager.cpp",
    ),
    Pattern(
        Event.STARTED,
        r"(?:\[TensorRT-LLM\] )?TensorRT-LLM version: ",
        "TensorRT-LLM version",
        source="__init__.py",
    ),
    Pattern(Event.LOADING, r"Loading weights", "Loading weights", source="modeling_utils.py"),
)

BATCHES = (
    Batch(
        r"has (?P<waiting>\d+) active_requests, scheduled (?P<context>\d+) context requests and (?P<running>\d+) generation",
        "active_requests",
        {"waiting": Gauge.WAITING, "running": Gauge.RUNNING},
        is_pairs=False,
        is_step=False,
        source="py_executor.py",
    ),
    Batch(
        r"iter = (?P<step>\d+),.*?(?:num_scheduled_requests: (?P<running>\d+))",
        "num_scheduled_requests",
        {"running": Gauge.RUNNING},
        is_pairs=False,
        source="py_executor.py",
    ),
)

# NIXL's own exporter: no prefix of its own.
NIXL_SERIES = (
    Series(Counter.TRANSFERS_DONE, "agent_xfer_time_us_count", source="nixl telemetry exporter"),
    Series(Counter.TRANSFERS_FAILED, "agent_errors_total", source="nixl telemetry exporter"),
)

TRTLLM_SIGNALS = SignalTable(dialect="trtllm", series=NIXL_SERIES, patterns=PATTERNS, batches=BATCHES)
