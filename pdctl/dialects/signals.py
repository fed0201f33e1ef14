"""Canonical signals: the words in which every analyzer thinks, and the tables that families are described in."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec


class Gauge(StrEnum):
    """Levels. Queues are named after what a request waits for."""

    RUNNING = "running"
    WAITING = "waiting"
    BOOTSTRAP = "bootstrap"
    """Prefill: for the partner."""
    INFLIGHT = "inflight"
    """Prefill: computed, for the transfer to end."""
    PREALLOC = "prealloc"
    """Decode: for pages."""
    TRANSFER = "transfer"
    """Decode: for the KV to land."""
    FETCH_DONE = "fetch_done"
    """Decode: KV landed, for the scheduler to notice."""
    HTTP_ACTIVE = "http_active"
    """Generating HTTP requests being answered; live, never frozen."""
    FRONT_INFLIGHT = "front_inflight"
    """Requests a router or frontend has dispatched and not answered."""
    KV_USAGE = "kv_usage"
    """0..1"""
    THROUGHPUT = "throughput"
    """Tokens a second, as printed."""
    KV_USED_TOKENS = "kv_used_tokens"
    KV_TOTAL_TOKENS = "kv_total_tokens"
    RETRACTED = "retracted"
    MODEL_READY = "model_ready"


class Counter(StrEnum):
    """Things that only grow while a process lives."""

    STEPS = "steps"
    PREFILL_TOKENS = "prefill_tokens"
    DECODE_TOKENS = "decode_tokens"
    REQUESTS_DONE = "requests_done"
    REQUESTS_STARTED = "requests_started"
    REQUESTS_FAILED = "requests_failed"
    ABORTS = "aborts"
    ALLOCATIONS = "allocations"
    KV_BYTES = "kv_bytes"
    """Sent by prefill, or read by decode."""
    TRANSFERS_DONE = "transfers_done"
    TRANSFERS_FAILED = "transfers_failed"
    BOOTSTRAPS_FAILED = "bootstraps_failed"
    DAMAGED = "damaged"
    """Transfers whose checksum was wrong on arrival."""
    KV_EXPIRED = "kv_expired"
    LATE_READS = "late_reads"
    EXTERNAL_QUERIES = "external_queries"
    EXTERNAL_HITS = "external_hits"
    EXTERNAL_TOKENS = "external_tokens"
    RETRACTIONS = "retractions"
    DECODE_ONLY = "decode_only"
    """Requests that a scheduler sent to decode alone."""
    PREFILL_AND_DECODE = "prefill_and_decode"
    FIRST_TOKENS = "first_tokens"
    """Requests whose first token is out."""
    FIRST_TOKEN_SECONDS = "first_token_seconds"
    """What those waited for it, summed."""


class Event(StrEnum):
    """Classes of log lines. A class is what happened, not how one version words it."""

    THREAD_DIED = "thread_died"
    """Group `thread`: the function it ran."""
    ROOM_FAILED = "room_failed"
    """Groups: side, stage, room, reason."""
    SESSION_FAILED = "session_failed"
    SESSION_RECOVERED = "session_recovered"
    SESSION_REFUSED = "session_refused"
    PEER_LOST = "peer_lost"
    TRANSPORT_ERROR = "transport_error"
    TRANSPORT_TIMEOUT = "transport_timeout"
    TRANSFER_FAILED = "transfer_failed"
    LEASE_EXPIRED = "lease_expired"
    LATE_READ = "late_read"
    CORRUPTION = "corruption"
    MISMATCH = "mismatch"
    """Group `field`."""
    HANDSHAKE_FAILED = "handshake_failed"
    WRONG_PEER = "wrong_peer"
    """The handshake reached another engine. Groups: expected, got."""
    REGISTRY_UNREACHABLE = "registry_unreachable"
    """Groups: host, port."""
    REGISTRATION_FAILED = "registration_failed"
    STALE_METADATA = "stale_metadata"
    RETRACTED = "retracted"
    POOL_LEAK = "pool_leak"
    POOL_FULL = "pool_full"
    WATCHDOG = "watchdog"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    COLLECTIVE_MISMATCH = "collective_mismatch"
    WORKER_SILENT = "worker_silent"
    """Ranks of one engine wait for each other."""
    HEALTH_FAILED = "health_failed"
    FATAL_SIGNAL = "fatal_signal"
    NATIVE_FRAME = "native_frame"
    """A frame of the transfer library in a crash report."""
    ENGINE_DIED = "engine_died"
    CHILD_DIED = "child_died"
    TERMINATED = "terminated"
    KERNEL_OOM = "kernel_oom"
    GPU_OOM = "gpu_oom"
    XID = "xid"
    GPU_ERROR = "gpu_error"
    STARTED = "started"
    LOADING = "loading"
    LOADED = "loaded"
    COMPILING = "compiling"
    READY = "ready"
    LIVENESS_FAILED = "liveness_failed"
    LIVENESS_KILLED = "liveness_killed"
    BACK_OFF = "back_off"
    CLIENT_GONE = "client_gone"
    TOO_LONG = "too_long"
    WAITING_TIMEOUT = "waiting_timeout"
    """Group `rid`."""
    TIME_STATS = "time_stats"
    """Groups: room, tokens, side."""
    ACCESS = "access"
    """Groups: method, path, status."""
    ROUTER_NO_WORKER = "router_no_worker"
    ROUTER_UNHEALTHY = "router_unhealthy"
    ROUTER_UPSTREAM = "router_upstream"
    """An upstream could not be reached. Group `url`."""
    ROUTED = "routed"
    """Group `url`: where the router sent a request, or which worker it added."""
    PREFILL_SKIPPED = "prefill_skipped"
    NO_HANDLER = "no_handler"
    DISCOVERY_REMOVED = "discovery_removed"
    KEEP_ALIVE_FAILED = "keep_alive_failed"
    KV_POOL_SIZE = "kv_pool_size"
    """Group `tokens`."""
    REQUEST_SIZE = "request_size"
    """Groups: tokens, or prompt and more."""
    TRANSFER_DEADLINE = "transfer_deadline"
    """A transfer ended by its own clock. Group `seconds` or `ms`."""
    ENGINE_ID = "engine_id"
    """Group `id`: who this engine says it is."""
    LISTEN_ADDRESS = "listen_address"
    """Group `host`: where its transfer engine can be reached."""
    HELD_BLOCKS = "held_blocks"
    """Aborted requests whose blocks wait for a transfer."""


class Series(msgspec.Struct, frozen=True):
    """One name of a signal. The first name a scrape has is used; its samples are summed, a share's maximum taken."""

    signal: Gauge | Counter
    name: str
    where: dict[str, tuple[str, ...]] = {}
    """Label -> values that count; empty: all."""
    role: str = ""
    """Only on this role."""
    is_batch_written: bool = False
    """A gauge written on a batch only: it freezes in a stall."""
    counts_polls: bool = False
    """A health check is work that moves it too."""
    versions: str = ""
    """`FIRST-LAST`, both included, several with commas; an empty bound is open. tests/peers/test_wheels.py holds it."""
    source: str = ""


class Pattern(msgspec.Struct, frozen=True):
    """One wording of an event, matched at the start of a message."""

    event: Event
    regex: str
    hint: str
    """A text that every match contains: lines without any hint are skipped in one pass."""
    versions: str = ""
    source: str = ""
    is_anchored: bool = True
    """False: the wording stands behind a prefix of varying length."""

    def compiled(self) -> re.Pattern[str]:
        """Return the compiled expression."""
        return re.compile(self.regex if self.is_anchored else r".{0,160}?" + self.regex, re.S)


class Batch(msgspec.Struct, frozen=True):
    """A line an engine prints while it works: levels at that moment."""

    regex: str
    hint: str
    keys: dict[str, Gauge]
    """Key or group name -> signal."""
    is_pairs: bool = True
    """`key: value` pairs, else the groups of `regex`."""
    is_step: bool = True
    """The line itself proves a step; else it is a periodic report."""
    source: str = ""


class SignalTable(msgspec.Struct, frozen=True, kw_only=True):
    """How a family says things."""

    dialect: str
    series: tuple[Series, ...] = ()
    ages: tuple[Series, ...] = ()
    """Seconds that the oldest request of a queue has been where it is; each under the queue's own gauge."""
    patterns: tuple[Pattern, ...] = ()
    batches: tuple[Batch, ...] = ()
    loads: dict[str, Gauge] = {}
    """Key of the flattened load report -> signal."""
