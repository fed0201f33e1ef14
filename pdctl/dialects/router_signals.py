"""What routers say: smg and sglang-router (measured on 1.13.0 and 0.3.2), vllm-router (0.1.17), llm-d's scheduler and sidecar."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

from pdctl.dialects.signals import Counter, Event, Gauge, Pattern, Series, SignalTable

_POSTS = ("/v1/chat/completions", "/v1/completions", "/generate", "/v1/responses", "/v1/messages")
_ANSWERED = (*_POSTS, "")
"""Health checks and our own GETs are answered too: they are no progress. sglang-router 0.3 tells no path."""

SMG_SERIES = (
    Series(Gauge.FRONT_INFLIGHT, "smg_worker_requests_active", source="smg metrics"),
    Series(Counter.REQUESTS_STARTED, "smg_http_requests_total", {"path": _POSTS}, source="smg metrics"),
    Series(
        Counter.REQUESTS_DONE,
        "smg_http_responses_total",
        {"status_code": ("200",), "path": _ANSWERED},
        source="smg metrics",
    ),
    Series(Counter.FIRST_TOKENS, "smg_pd_ttft_seconds_count", source="smg metrics"),
    Series(Counter.FIRST_TOKEN_SECONDS, "smg_pd_ttft_seconds_sum", source="smg metrics"),
    Series(
        Counter.REQUESTS_FAILED,
        "smg_http_responses_total",
        {"status_code": ("500", "502", "503", "504"), "path": _ANSWERED},
        source="smg metrics",
    ),
)

# `Selected worker`-like lines are left to pairing; what counts is what a router says of its workers.
PATTERNS = (
    Pattern(
        Event.ROUTER_NO_WORKER,
        r".{0,200}?(?:No available (?:prefill|decode|\w+)?\s*workers?|no_healthy_worker_pair|no_available_workers|server_selection_failed|no_prefill_servers|[Nn]o healthy (?:prefill|decode|workers?|endpoints?|upstream|pods?))",
        "o",
        source="smg routers/http/pd_router.rs",
    ),
    Pattern(
        Event.ROUTER_NO_WORKER,
        r".{0,120}?all circuits open or unhealthy",
        "all circuits open",
        source="smg pd_router.rs",
    ),
    Pattern(
        Event.ROUTER_UNHEALTHY,
        r".{0,160}?(?:[Ww]orker|[Hh]ealth check).{0,80}(?:marked (?:as )?unhealthy|became unhealthy|is (?:now )?unhealthy|health check failed|failed health)",
        "health",
        source="smg core/worker.rs",
    ),
    Pattern(
        Event.ROUTER_UNHEALTHY,
        r".{0,160}?[Cc]ircuit ?[Bb]reaker.{0,80}(?:Closed -> Open|to Open|opened|is open)",
        "reaker",
        source="smg core/circuit_breaker.rs",
    ),
    Pattern(
        Event.ACCESS,
        r"(?:finished processing request|request failed with (?:server|client) error) .*?method=(?P<method>\w+) uri=(?P<path>\S+).*?status_code=(?P<status>\d{3})(?:.*?latency=(?P<seconds>[\d.]+)s)?",
        "status_code=",
        source="smg middleware.rs",
    ),
    Pattern(
        Event.ROUTER_UPSTREAM,
        r".{0,240}?(?:dial tcp|connect(?:ion)? (?:error|refused)|[Cc]onnection refused|error sending request|tcp connect error|connect: connection refused).{0,200}?(?P<url>(?:https?://)?\d+\.\d+\.\d+\.\d+:\d+)?",
        "",
        source="hyper, net/http",
    ),
    Pattern(
        Event.ROUTED,
        r".{0,40}?(?:Adding pod|Added worker|Activated worker|Registered worker).*?url: (?P<url>\S+)",
        "url: ",
        source="smg service_discovery.rs",
    ),
    Pattern(
        Event.ROUTED,
        r".{0,60}?(?:sending|forwarding|routing).{0,30}request to (?:prefiller|prefill|decode).*?(?P<url>\d+\.\d+\.\d+\.\d+:\d+)",
        "request to",
        source="llm-d-router pkg/sidecar",
    ),
    Pattern(
        Event.PREFILL_SKIPPED,
        r".{0,60}?(?:skip(?:ping)? (?:disaggregated )?prefill|missing 'kv_transfer_params'|no prefill(?:er)? (?:header|pod|selected|needed)|header not found|decode[- ]only)",
        "",
        source="llm-d-router pkg/sidecar/proxy",
    ),
    Pattern(
        Event.CLIENT_GONE,
        r".{0,200}?(?:[Cc]lient (?:disconnected|closed|cancelled|canceled)|context canceled|[Oo]peration was cancell?ed|stream (?:was )?cancell?ed|status: Cancelled|499)",
        "",
        source="hyper, tonic, net/http",
    ),
)

SMG_SIGNALS = SignalTable(dialect="smg", series=SMG_SERIES, patterns=PATTERNS)

VLLM_ROUTER_SIGNALS = SignalTable(
    dialect="vllm-router",
    series=(
        Series(Gauge.FRONT_INFLIGHT, "vllm_router_running_requests", source="vllm-router metrics"),
        Series(Counter.REQUESTS_STARTED, "vllm_router_requests_total", source="vllm-router metrics"),
    ),
    patterns=PATTERNS,
)

LLM_D_SIGNALS = SignalTable(
    dialect="llm-d",
    series=(
        Series(Gauge.FRONT_INFLIGHT, "llm_d_epp_request_running", source="llm-d-router pkg/metrics"),
        Series(Counter.REQUESTS_DONE, "llm_d_epp_request_ttft_seconds_count", source="llm-d-router pkg/metrics"),
        Series(
            Counter.DECODE_ONLY,
            "llm_d_epp_disagg_decision_total",
            {"decision_type": ("decode-only",)},
            source="llm-d-router pkg/metrics",
        ),
        Series(
            Counter.PREFILL_AND_DECODE,
            "llm_d_epp_disagg_decision_total",
            {"decision_type": ("prefill-decode", "encode-prefill-decode")},
            source="llm-d-router pkg/metrics",
        ),
    ),
    patterns=PATTERNS,
)
