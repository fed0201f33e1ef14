"""What our own engine says (engine/observe/metrics.py). Computed from live state at each scrape: never frozen."""

from __future__ import annotations

from pdctl.dialects.signals import Counter, Event, Gauge, Pattern, Series, SignalTable

_SOURCE = "engine/observe/metrics.py"

PAGES = "pdengine_pages"
QUEUE_LENGTH = "pdengine_queue_length"
QUEUE_AGE = "pdengine_queue_oldest_age_seconds"
TRANSFERS = "pdengine_transfers_total"
LAST_PROGRESS = "pdengine_last_progress_timestamp_seconds"
THREAD_ALIVE = "pdengine_thread_alive"
THREAD_RESTARTS = "pdengine_thread_restarts_total"
FAILED_ROOMS = (
    "pairing_timeout", "peer_gone", "peer_silent", "peer_stuck", "peer_refused", "contract_mismatch",
    "prompt_mismatch", "checksum_mismatch", "read_failed", "unreachable", "gone",
)  # fmt: skip
"""Reasons of engine/transfer/interface.py but `aborted` and `draining`, which somebody asked for."""
CONTROL_THREAD = "transfer-control"
"""Speaks with the peers: takes ABORT and offers on prefill, learns on decode that KV may be read."""
DATA_THREAD = "transfer-nixl"
"""Owns the NIXL agent: serves pages on prefill, reads them on decode."""


def _queue(signal: Gauge, *phases: str, role: str = "") -> Series:
    """Return a queue as the sum of phases of engine/scheduler/sequence.py."""
    return Series(signal, QUEUE_LENGTH, {"queue": phases}, role, source=_SOURCE)


def _age(signal: Gauge, *phases: str, role: str = "") -> Series:
    """Return the age of the oldest request in some phases, since it entered its phase; without phases, in any."""
    return Series(signal, QUEUE_AGE, {"queue": phases} if phases else {}, role, source=_SOURCE)


PDCTL_SIGNALS = SignalTable(
    dialect="pdctl",
    series=(
        _queue(Gauge.RUNNING, "prompt", "decoding"),
        _queue(Gauge.WAITING, "waiting"),
        _queue(Gauge.BOOTSTRAP, "room", role="prefill"),
        _queue(Gauge.PREALLOC, "pages", role="decode"),
        Series(Gauge.INFLIGHT, "pdengine_rooms", {"state": ("reading",)}, "prefill", source=_SOURCE),
        Series(Gauge.TRANSFER, "pdengine_rooms", {"state": ("paired", "reading")}, "decode", source=_SOURCE),
        Series(Gauge.HTTP_ACTIVE, "pdengine_http_generations", source=_SOURCE),
        Series(Counter.STEPS, "pdengine_steps_total", source=_SOURCE),
        Series(Counter.PREFILL_TOKENS, "pdengine_prompt_tokens_total", source=_SOURCE),
        Series(Counter.DECODE_TOKENS, "pdengine_generated_tokens_total", source=_SOURCE),
        Series(
            Counter.REQUESTS_DONE,
            "pdengine_requests_total",
            {"result": ("stop", "length", "handed_over")},
            source=_SOURCE,
        ),
        Series(
            Counter.TRANSFERS_DONE,
            "pdengine_transfers_total",
            {"result": ("landed",)},
            source=_SOURCE,
        ),
        Series(Counter.TRANSFERS_FAILED, "pdengine_transfers_total", {"result": FAILED_ROOMS}, source=_SOURCE),
        Series(
            Counter.DAMAGED,
            "pdengine_transfers_total",
            {"result": ("checksum_mismatch",)},
            source=_SOURCE,
        ),
        Series(Counter.KV_BYTES, "pdengine_transfer_bytes_total", source=_SOURCE),
        Series(Counter.ABORTS, "pdengine_http_clients_left_total", source=_SOURCE),
        Series(Counter.RETRACTIONS, "pdengine_retractions_total", source=_SOURCE),
    ),
    ages=(
        _age(Gauge.RUNNING, "prompt", "decoding"),
        _age(Gauge.WAITING, "waiting"),
        _age(Gauge.BOOTSTRAP, "room", role="prefill"),
        _age(Gauge.INFLIGHT, "waiting", "prompt", "held", role="prefill"),
        _age(Gauge.PREALLOC, "pages", role="decode"),
        _age(Gauge.TRANSFER, "room", "pages", "reading", role="decode"),
        _age(Gauge.HTTP_ACTIVE),
    ),
    patterns=(
        Pattern(
            Event.CHILD_DIED,
            r"the scheduler process.{0,16} \(pid (?P<pid>\d+)\) was killed by (?P<signal>SIG\w+)",
            "was killed by",
            source="engine/rank_processes.py",
            is_anchored=False,
        ),
        Pattern(Event.THREAD_DIED, r"thread (?P<thread>\S+) crashed", "thread ", source="engine/observe/threads.py"),
        Pattern(
            Event.CORRUPTION,
            r".{0,60}checksum .{0,40}(?:wrong|mismatch|differs)",
            "checksum",
            source="engine/transfer",
        ),
    ),
)
