"""What routers say: sglang-router 0.1.9 to 0.3.2 and smg, which goes on with its numbers from 1.1.0 to 1.13.0; vllm-router
0.1.12 to 0.1.17, a fork of sglang-router; llm-d's scheduler and sidecar (source of August 2026)."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

import msgspec

from pdctl.dialects.signals import Counter, Event, Gauge, Pattern, Series, SignalTable

_POSTS = ("/v1/chat/completions", "/v1/completions", "/generate", "/v1/responses", "/v1/messages")
_ANSWERED = (*_POSTS, "")
"""Health checks and our own GETs are answered too: they are no progress. sglang-router 0.3 tells no path."""

_METRICS = "observability/metrics.rs"

SMG_SERIES = (
    # The requests that it holds, each once. What it counts by worker has both legs, and may keep those of clients that
    # left (measured on 1.13.0: 14 s after they had, 2 active on a worker, none admitted, nobody connected).
    Series(Gauge.FRONT_INFLIGHT, "smg_admission_inflight", versions="1.10.0-", source=_METRICS),
    Series(Gauge.FRONT_INFLIGHT, "smg_worker_requests_active", versions="0.3.0-", source=_METRICS),
    Series(Gauge.FRONT_INFLIGHT, "sgl_router_running_requests", versions="-0.2.4", source="metrics.rs"),
    Series(Counter.REQUESTS_STARTED, "smg_http_requests_total", {"path": _POSTS}, versions="0.3.0-", source=_METRICS),
    Series(Counter.REQUESTS_STARTED, "sgl_router_requests_total", versions="-0.2.4", source="metrics.rs"),
    Series(
        Counter.REQUESTS_DONE,
        "smg_http_responses_total",
        {"status_code": ("200",), "path": _ANSWERED},
        versions="0.3.0-",
        source=_METRICS,
    ),
    Series(Counter.FIRST_TOKENS, "smg_pd_ttft_seconds_count", versions="1.7.0-", source=_METRICS),
    Series(Counter.FIRST_TOKEN_SECONDS, "smg_pd_ttft_seconds_sum", versions="1.7.0-", source=_METRICS),
    Series(
        Counter.REQUESTS_FAILED,
        "smg_http_responses_total",
        {"status_code": ("500", "502", "503", "504"), "path": _ANSWERED},
        versions="0.3.0-",
        source=_METRICS,
    ),
)

# `Selected worker`-like lines are left to pairing; what counts is what a router says of its workers.
_RUST = (
    Pattern(
        Event.ROUTER_NO_WORKER,
        r".{0,200}?(?:No available (?:prefill|decode|\w+)?\s*workers?|No workers are available|All workers are unavailable|no_healthy_worker_pair|no_available_workers|server_selection_failed|no_prefill_servers|[Nn]o healthy (?:prefill|decode|workers?))",
        "o",
        source="routers/http/pd_router.rs, smg routers/common/placement.rs",
    ),
    Pattern(
        Event.ROUTER_UNHEALTHY,
        r".{0,160}?(?:Health check failed (?:for worker|\(consecutive failures)|Worker .{0,80}health check failed)",
        "ealth check failed",
        source="core/worker.rs, smg worker/manager.rs",
    ),
    Pattern(
        Event.ACCESS,
        r"(?:finished processing request|request failed with (?:server|client) error) .*?method=(?P<method>\w+) (?:uri|path)=(?P<path>\S+).*?status_code=(?P<status>\d{3})(?:.*?latency=(?P<seconds>[\d.]+)s)?",
        "status_code=",
        source="middleware.rs, smg middleware/logging.rs; measured on smg 1.13.0, whose latency has no unit",
    ),
    Pattern(
        Event.ROUTED,
        r".{0,40}?(?:Adding pod|Added worker|Activated worker|Registered worker).*?url: (?P<url>\S+)",
        "url: ",
        source="service_discovery.rs",
    ),
)

_SINCE_BREAKERS = (
    Pattern(
        Event.ROUTER_NO_WORKER,
        r".{0,120}?all circuits open or unhealthy",
        "all circuits open",
        "0.2.0-",
        "pd_router.rs",
    ),
    Pattern(
        Event.ROUTER_UNHEALTHY,
        r"Circuit breaker state transition: \w+ -> [Oo]pen\b",
        "Circuit breaker state",
        "0.2.0-",
        "core/circuit_breaker.rs; measured on smg 1.13.0",
    ),
)

_VLLM_ROUTER = (
    # It has them in all its releases, whose numbers are its own.
    *(msgspec.structs.replace(row, versions="") for row in _SINCE_BREAKERS),
    Pattern(
        Event.ROUTER_UNHEALTHY,
        r".{0,160}?is unhealthy, falling back to healthy worker",
        "falling back to healthy",
        source="vllm_router_rs",
    ),
)

_SMG = (
    *_SINCE_BREAKERS,
    Pattern(
        Event.ROUTER_UNHEALTHY,
        r"HTTP health check failed for (?P<url>\S+)",
        "HTTP health check failed",
        "0.2.0-",
        "worker/worker.rs; measured on smg 1.13.0",
    ),
    Pattern(
        Event.ROUTER_UNHEALTHY,
        r"Worker status transition \w+=(?P<url>\S+) old=\W*\w+\W* new=\W*(?:NotReady|Failed)",
        "Worker status transition",
        "1.5.0-",
        "worker/manager.rs; measured on smg 1.13.0",
    ),
)

_ELSEWHERE = (
    Pattern(
        Event.ROUTER_NO_WORKER,
        r".{0,200}?[Nn]o healthy (?:endpoints?|upstream|pods?)",
        "o healthy",
        source="envoy, Kubernetes gateways",
    ),
    Pattern(
        Event.ROUTER_UPSTREAM,
        r".{0,240}?(?:dial tcp|connect(?:ion)? (?:error|refused)|[Cc]onnection refused|error sending request|tcp connect error|connect: connection refused).{0,200}?(?P<url>(?:https?://)?\d+\.\d+\.\d+\.\d+:\d+)?",
        "",
        source="hyper, net/http",
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
        r".{0,200}?(?:[Cc]lient (?:disconnected|closed|cancelled|canceled)|context canceled|[Oo]peration was cancell?ed|stream (?:was )?cancell?ed|status: Cancelled)",
        "",
        source="hyper, tonic, net/http",
    ),
    Pattern(
        Event.CLIENT_GONE,
        r".{0,400}?(?:(?<![A-Za-z])(?:status|code)\W{1,4}|HTTP/[\d.]+\" )499(?![.\d])",
        "499",
        source="smg, envoy, nginx: the status of a request whose client left",
    ),
)

PATTERNS = (*_RUST, *_SMG, *_VLLM_ROUTER, *_ELSEWHERE)
"""What any router may say. Names are told apart by themselves, so that a folder with a wrong dialect is understood."""

SMG_SIGNALS = SignalTable(dialect="smg", series=SMG_SERIES, patterns=(*_RUST, *_SMG, *_ELSEWHERE))

VLLM_ROUTER_SIGNALS = SignalTable(
    dialect="vllm-router",
    series=(
        Series(Gauge.FRONT_INFLIGHT, "vllm_router_running_requests", source="vllm-router metrics"),
        Series(Counter.REQUESTS_STARTED, "vllm_router_requests_total", source="vllm-router metrics"),
    ),
    patterns=(*_RUST, *_VLLM_ROUTER, *_ELSEWHERE),
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
    patterns=_ELSEWHERE,
)
