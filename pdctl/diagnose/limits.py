"""All limits of the diagnosis: every number an analyzer compares with, each with its reason."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """One value a row. Ratios always stand beside an absolute floor."""

    patience_s: float = 10.0
    """Least time without progress before a unit counts as stalled: longer than any batch line or step seen healthy."""
    silence_s: float = 60.0
    """A log that stops this long before the capture, while work was outstanding, stopped with the engine."""
    fresh_log_s: float = 45.0
    """A batch line this young shows work: SGLang prints each 40 decode steps, vLLM every 10 s."""
    just_now_s: float = 120.0
    """A line this young was printed by a process that lives: engines and kubelets print at least health checks."""
    failing_completions: int = 5
    """Fewer completions are too few to call a unit failing."""
    failing_share: float = 0.5
    """Half or more of the completions failed."""
    burst_events: int = 3
    """Aborts or failures within `burst_s` that make a burst."""
    burst_s: float = 60.0
    onset_s: float = 600.0
    """A cause precedes the silence it explains by at most this."""
    age_ratio: float = 3.0
    """One side lived this many times longer than the other..."""
    age_floor_s: float = 1800.0
    """...and at least this much longer: simultaneous rollouts differ by minutes."""
    asymmetry_ratio: float = 5.0
    asymmetry_floor: float = 5.0
    """Failures on one side against the other: five times as many, and five at least."""
    quantum_tolerance_s: float = 2.0
    """Ends within this of one configured timeout are ends by that timeout (it is polled about once a second)."""
    quantum_events: int = 3
    kv_full: float = 0.95
    """Above it admission stops (SGLang reserves 512 tokens a request)."""
    kv_low: float = 0.5
    """Below it, capacity is no reason to wait."""
    idle_kv_tokens: float = 1024.0
    """KV in use on a system without requests: one chunk or more is a leak, less may be a warm-up request."""
    ownerless_s: float = 2.0
    """Pages of ended requests are free within a moment; two samples this far apart that show them show a leak."""
    loop_turn_s: float = 0.5
    """The loop of our engine turns every 0.1 s, idle too; one that has not moved so far stands in a step."""
    host_memory_ratio: float = 3.0
    host_memory_floor_mb: float = 65_536.0
    """Host memory of an idle rank against a rank of its peer: SGLang's ranks hold 5-20 GB."""
    floor_minutes: float = 5.0
    floor_count: float = 5.0
    """A queue that never fell below this for so long holds entries that do not move."""
    floor_share: float = 0.5
    recent_errors_s: float = 1800.0
    """Transport errors older than half an hour explain nothing of the present."""
    rare_share: float = 0.02
    """Fewer failures than two in a hundred are noise of a large fleet."""
    crash_restarts: int = 2
    crash_starts: int = 3
    """Start-up runs in one log, each ended by a death: the third shows a loop."""
    startup_s: float = 1800.0
    """Loading and compiling of the largest models is done within half an hour."""
    slow_load_s: float = 300.0
    """Loading that still goes on after this is slow (91 shards of a 700 GB model take 4 min from NVMe)."""
    long_queue: float = 2.0
    """So many requests that wait are a queue; one may be on its way into the batch."""
    late_first_token_s: float = 5.0
    """A first token that takes longer was waited for in a queue: no prompt of usual length computes that long."""
    full_by_requests: float = 4.0
    """So many running requests account for full KV memory; with fewer it may be held by nobody."""
    orphan_floor: float = 2.0
    """Requests in flight at the frontend that no worker has: one may be between the two."""
    orphan_share: float = 0.5
    most_sockets: int = 200
    """So many of one instance are collected: beyond that, one that is missing proves nothing."""
    same_second_s: float = 2.0
    client_gone: int = 3
    departures_s: float = 120.0
    """Clients that left before are past: what they waited for was answered since, or hangs and shows elsewhere."""
    router_refused: int = 2
    readmission_s: float = 300.0
    """A router that asks once a minute and wants several good answers has let a worker in again by then."""
    fast_failure_s: float = 5.0
    gpu_spin_percent: float = 90.0
    gpu_idle_percent: float = 5.0
    polls: float = 2.0
    polls_per_s: float = 0.5
    """Health checks of ours and of a kubelet, a router and a load balancer: each a token and a step of SGLang."""
    health_slow_ms: float = 1000.0
    bypass_requests: float = 10.0
    """Requests finished by decode while prefill got none: fewer may be requests that were prefilled before."""
    bypass_queries: float = 1000.0
    """Tokens asked of the external cache without one hit."""


LIMITS = Limits()
