"""What Dynamo frontends and workers say. Held against 1.0.0 to 1.6.1, measured on 1.6.1 with mock engines."""

from __future__ import annotations

from pdctl.dialects.signals import Counter, Event, Gauge, Pattern, Series, SignalTable

_FRONT = "http/service/metrics.rs"

SERIES = (
    Series(Gauge.FRONT_INFLIGHT, "dynamo_frontend_inflight_requests", source=_FRONT),
    Series(Gauge.FRONT_INFLIGHT, "dynamo_frontend_active_requests", versions="1.2.1-", source=_FRONT),
    Series(Gauge.MODEL_READY, "dynamo_frontend_model_ready", versions="1.5.1-", source=_FRONT),
    Series(Counter.REQUESTS_DONE, "dynamo_frontend_requests_total", {"status": ("success",)}, source=_FRONT),
    Series(Counter.REQUESTS_FAILED, "dynamo_frontend_requests_total", {"status": ("error",)}, source=_FRONT),
    Series(Counter.REQUESTS_STARTED, "dynamo_frontend_requests_started_total", versions="1.3.1-", source=_FRONT),
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
    Series(Counter.ABORTS, "dynamo_component_cancellation_total", versions="1.1.1-", source="component metrics"),
)

PATTERNS = (
    Pattern(
        Event.READY,
        r"(?:Registered|Registering) endpoint",
        " endpoint",
        source="component/endpoint.rs",
    ),
    Pattern(Event.READY, r".{0,40}serving requests", "serving requests", source="threads; in no release"),
    Pattern(
        Event.NO_HANDLER,
        r"No handler found for endpoint: (?P<endpoint>\S+)",
        "No handler found",
        source="shared_tcp_endpoint.rs, dynamo #13088",
    ),
    Pattern(
        Event.KEEP_ALIVE_FAILED,
        r"(?:.{0,80}?)keep_alive failed",
        "keep_alive failed",
        source="storage/kv/file.rs",
    ),
    Pattern(
        Event.KEEP_ALIVE_FAILED,
        r"(?:.{0,80}?)(?:[Ll]ease .{0,60}(?:expired|not found|lost)|Keep-alive stream unexpectedly ended)",
        "e",
        source="transports/etcd",
    ),
    Pattern(
        Event.DISCOVERY_REMOVED,
        r"Removed discovered model group",
        "Removed discovered model",
        "1.5.1-",
        "discovery/watcher.rs",
    ),
    Pattern(
        Event.DISCOVERY_REMOVED,
        r"discovery snapshot instances=0",
        "instances=0",
        source="threads; in no release",
    ),
    Pattern(Event.TERMINATED, r"received SIGTERM", "SIGTERM", source="threads; in no release"),
    Pattern(Event.CLIENT_GONE, r"request cancellation received", "cancellation received", "1.5.1-", "push_handler.rs"),
    Pattern(Event.CLIENT_GONE, r".{0,60}[Cc]lient disconnected", "lient disconnected", "-1.0.2,1.2.1-", _FRONT),
    Pattern(
        Event.ROUTER_NO_WORKER,
        r".{0,80}(?:not ready to serve|no (?:instances|workers|responders)|NoResponders|[Nn]o endpoints available)",
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
