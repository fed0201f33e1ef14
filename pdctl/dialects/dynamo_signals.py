"""What Dynamo frontends and workers say. Measured on 1.6.1 with mock engines; threads where named."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

from pdctl.dialects.signals import Counter, Event, Gauge, Pattern, Series, SignalTable

_FRONT = "http/service/metrics.rs"

SERIES = (
    Series(Gauge.FRONT_INFLIGHT, "dynamo_frontend_inflight_requests", source=_FRONT),
    Series(Gauge.FRONT_INFLIGHT, "dynamo_frontend_active_requests", source=_FRONT),
    Series(Gauge.MODEL_READY, "dynamo_frontend_model_ready", source=_FRONT),
    Series(Counter.REQUESTS_DONE, "dynamo_frontend_requests_total", {"status": ("success",)}, source=_FRONT),
    Series(Counter.REQUESTS_FAILED, "dynamo_frontend_requests_total", {"status": ("error",)}, source=_FRONT),
    Series(Counter.REQUESTS_STARTED, "dynamo_frontend_requests_started_total", source=_FRONT),
    Series(Counter.DECODE_TOKENS, "dynamo_frontend_output_tokens_total", source=_FRONT),
    Series(Counter.FIRST_TOKENS, "dynamo_frontend_time_to_first_token_seconds_count", source=_FRONT),
    Series(Counter.FIRST_TOKEN_SECONDS, "dynamo_frontend_time_to_first_token_seconds_sum", source=_FRONT),
    Series(
        Gauge.HTTP_ACTIVE,
        "dynamo_component_inflight_requests",
        {"dynamo_endpoint": ("generate",)},
        source="component metrics",
    ),
    Series(
        Counter.REQUESTS_DONE,
        "dynamo_component_requests_total",
        {"dynamo_endpoint": ("generate",)},
        source="component metrics",
    ),
    Series(Counter.ABORTS, "dynamo_component_cancellation_total", source="component metrics"),
)

PATTERNS = (
    Pattern(
        Event.READY,
        r"(?:Registered endpoint|Registering endpoint|.{0,40}serving requests)",
        "e",
        source="component/endpoint.rs",
    ),
    Pattern(
        Event.NO_HANDLER,
        r"No handler found for endpoint: (?P<endpoint>\S+)",
        "No handler found",
        "1.x",
        "shared_tcp_endpoint.rs, dynamo #13088",
    ),
    Pattern(
        Event.KEEP_ALIVE_FAILED,
        r"(?:.{0,80}?)keep_alive failed",
        "keep_alive failed",
        "1.6",
        "storage/kv/file.rs",
    ),
    Pattern(
        Event.KEEP_ALIVE_FAILED,
        r"(?:.{0,80}?)[Ll]ease .{0,60}(?:expired|not found|lost)",
        "ease ",
        source="transports/etcd",
    ),
    Pattern(
        Event.DISCOVERY_REMOVED,
        r"Removed discovered model group",
        "Removed discovered model",
        "1.6",
        "discovery/watcher.rs",
    ),
    Pattern(
        Event.DISCOVERY_REMOVED,
        r"discovery snapshot instances=0",
        "instances=0",
        source="discovery/watcher.rs",
    ),
    Pattern(Event.TERMINATED, r"received SIGTERM", "SIGTERM", source="worker.rs"),
    Pattern(Event.CLIENT_GONE, r"request cancellation received", "cancellation received", source="push_handler.rs"),
    Pattern(Event.CLIENT_GONE, r".{0,60}[Cc]lient disconnected", "lient disconnected", source=_FRONT),
    Pattern(
        Event.ROUTER_NO_WORKER,
        r".{0,80}(?:not ready to serve|no (?:instances|workers|responders)(?: are)?(?: found| available)?|NoResponders|[Nn]o endpoints available)",
        "o",
        source="push_router.rs",
    ),
    Pattern(
        Event.ROUTED,
        r"Selected worker:? .*?worker_id[=: ](?P<url>\d+)",
        "Selected worker",
        source="kv_router/scheduler.rs",
    ),
)

DYNAMO_SIGNALS = SignalTable(dialect="dynamo", series=SERIES, patterns=PATTERNS)
