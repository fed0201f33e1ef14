"""The finding codes: name, label, level, action, what follows from it. A code is never reused."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdctl.errors import UsageError


class Level(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Action(StrEnum):
    RESTART_PAIR = "restart_pair"
    RESTART_INSTANCE = "restart_instance"
    RESTART_ROUTER = "restart_router"
    ABORT_ALL = "abort_all"
    FIX_CONFIG = "fix_config"
    SCALE = "scale"
    WAIT = "wait"
    REPLACE_HOST = "replace_host"
    NONE = "none"


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    code: str
    name: str
    label: str
    level: Level
    action: Action
    title: str
    leads_to: tuple[str, ...] = ()
    """Codes that follow from it."""
    is_wedge: bool = True
    """Whether stalled work under this cause stays stalled until somebody acts on the engines."""
    drill: str | None = None

    @property
    def runbook(self) -> str:
        """Return the runbook's path inside the package."""
        return f"runbooks/{self.code}-{self.name}.md"


def _code(
    code: str,
    name: str,
    label: str,
    action: Action,
    title: str,
    leads_to: tuple[str, ...] = (),
    *,
    level: Level = Level.ERROR,
    is_wedge: bool = True,
    drill: str | None = None,
) -> Code:
    return Code(
        code=code, name=name, label=label, level=level, action=action, title=title,
        leads_to=leads_to, is_wedge=is_wedge, drill=drill,
    )  # fmt: skip


_PAIR, _ONE, _CONFIG = Action.RESTART_PAIR, Action.RESTART_INSTANCE, Action.FIX_CONFIG
_AFTER_DEATH = ("PD0306", "PD0307", "PD0308", "PD0310", "PD0311", "PD0801", "PD0803", "PD0805", "PD0402")
_AFTER_CRASH = ("PD0101", "PD0102", "PD0103", *_AFTER_DEATH)
_AFTER_MISMATCH = ("PD0101", "PD0102", "PD0306", "PD0308", "PD0309", "PD0310", "PD0312")

CATALOGUE: tuple[Code, ...] = (
    _code("PD0101", "process-gone", "peer_down", _ONE, "an instance is gone", _AFTER_DEATH),
    _code(
        "PD0102",
        "crash-loop",
        "peer_crashloop",
        _CONFIG,
        "an instance dies again and again",
        ("PD0101", "PD0902", "PD0903", *_AFTER_DEATH),
        is_wedge=False,
        drill="crash-loop",
    ),
    _code(
        "PD0103",
        "zombie",
        "zombie_parent",
        _ONE,
        "a rank is dead and its parent still answers",
        ("PD0101", *_AFTER_DEATH),
        drill="zombie",
    ),
    _code(
        "PD0201",
        "layout-mismatch",
        "handshake_misconfig",
        _CONFIG,
        "the two sides disagree on page size or layout",
        _AFTER_MISMATCH,
        drill="mismatch",
    ),
    _code(
        "PD0202",
        "dtype-mismatch",
        "handshake_misconfig",
        _CONFIG,
        "the two sides keep KV in different types",
        _AFTER_MISMATCH,
    ),
    _code(
        "PD0203",
        "parallel-mismatch",
        "handshake_misconfig",
        _CONFIG,
        "this mix of tensor-parallel sizes is not supported",
        _AFTER_MISMATCH,
    ),
    _code(
        "PD0204",
        "wrong-port",
        "handshake_misconfig",
        _CONFIG,
        "a side dials a port where the other does not listen",
        _AFTER_MISMATCH,
    ),
    _code(
        "PD0205",
        "version-skew",
        "handshake_misconfig",
        _CONFIG,
        "the two sides speak different versions",
        _AFTER_MISMATCH,
    ),
    _code(
        "PD0206",
        "wrong-address",
        "handshake_misconfig",
        _CONFIG,
        "a transfer engine announces an address of another network",
        _AFTER_MISMATCH,
    ),
    _code(
        "PD0207",
        "wrong-engine",
        "handshake_misconfig",
        _CONFIG,
        "the handshake reaches another engine than it should",
        _AFTER_MISMATCH,
    ),
    _code(
        "PD0301",
        "bootstrap-thread-dead",
        "bootstrap_thread_dead",
        _PAIR,
        "prefill's bootstrap thread is dead",
        ("PD0304", "PD0306", "PD0308", "PD0402"),
        drill="mass-abort",
    ),
    _code(
        "PD0302",
        "transfer-thread-dead",
        "transfer_thread_dead",
        _PAIR,
        "a transfer worker of prefill is dead",
        ("PD0304", "PD0306", "PD0308", "PD0402"),
        drill="abort-race",
    ),
    _code(
        "PD0303",
        "status-thread-dead",
        "decode_status_thread_dead",
        _PAIR,
        "decode's status thread is dead",
        ("PD0304", "PD0306", "PD0308", "PD0402"),
        drill="status-thread",
    ),
    _code(
        "PD0304",
        "stuck-handle",
        "transfer_engine_wedged_after_abort",
        _PAIR,
        "an aborted transfer never ends and blocks the rest",
        ("PD0306", "PD0308", "PD0402", "PD0403"),
        drill="stuck-handle",
    ),
    _code(
        "PD0305",
        "silent-peer",
        "peer_down",
        _ONE,
        "an instance is stopped: alive for the kernel, dead for its peers",
        _AFTER_DEATH,
        drill="silent-peer",
    ),
    _code(
        "PD0306",
        "transfer-stuck",
        "transfer_stuck_in_progress",
        _PAIR,
        "transfers stay in progress without end or error",
        ("PD0308", "PD0401", "PD0402"),
    ),
    _code(
        "PD0307",
        "one-sided-restart",
        "stale_bootstrap_after_partial_restart",
        _PAIR,
        "one side was restarted alone, the other keeps the old state",
        ("PD0306", "PD0308", "PD0310", "PD0311"),
        drill="decode-restart",
    ),
    _code(
        "PD0308",
        "lost-failure",
        "peer_failure_not_propagated",
        _PAIR,
        "one side failed and the other was not told",
        ("PD0306", "PD0402", "PD0401"),
        drill="lost-failure",
    ),
    _code(
        "PD0309",
        "corrupt-page",
        "data_corruption_in_transfer",
        _PAIR,
        "answers are wrong: KV arrived damaged or not at all",
        (),
        is_wedge=False,
        drill="corrupt-page",
    ),
    _code(
        "PD0310",
        "transport-errors",
        "transfer_timeout_network",
        _PAIR,
        "transfers fail on the network while both sides live",
        ("PD0306", "PD0308", "PD0311", "PD0401", "PD0402", "PD0309"),
    ),
    _code(
        "PD0311",
        "session-blacklisted",
        "transfer_session_blacklisted",
        _PAIR,
        "prefill refuses a healthy decode for an old failure",
        ("PD0308",),
    ),
    _code(
        "PD0312",
        "native-crash",
        "native_crash_in_transfer_engine",
        _ONE,
        "the transfer library crashed its process",
        _AFTER_CRASH,
        is_wedge=False,
    ),
    _code(
        "PD0313",
        "late-read",
        "data_corruption_in_transfer",
        _CONFIG,
        "KV was read after its lease had ended",
        (),
        is_wedge=False,
    ),
    _code(
        "PD0401",
        "kv-exhausted",
        "kv_cache_exhausted",
        _PAIR,
        "KV memory is full and nothing frees it",
        ("PD0402",),
    ),
    _code(
        "PD0402",
        "starved",
        "prealloc_starved",
        _PAIR,
        "requests starve for decode pages",
        ("PD0308",),
        drill="starved",
    ),
    _code(
        "PD0403",
        "kv-leak",
        "memory_or_kv_leak_after_abort",
        _ONE,
        "KV pages of ended requests are never freed",
        ("PD0401", "PD0402", "PD0306"),
        drill="leak",
    ),
    _code(
        "PD0404",
        "host-memory-leak",
        "memory_or_kv_leak_after_abort",
        _ONE,
        "host memory of ended requests is never freed",
        ("PD0702",),
        is_wedge=False,
    ),
    _code(
        "PD0405",
        "unservable-request",
        "unservable_request_head_of_line",
        Action.ABORT_ALL,
        "a request that can never fit blocks the queue",
        (),
        is_wedge=False,
    ),
    _code(
        "PD0501",
        "desync",
        "tp_collective_desync",
        _ONE,
        "ranks left each other in the scheduler",
        ("PD0102", "PD0306", "PD0402", "PD0602", "PD0601"),
    ),
    _code(
        "PD0502",
        "stage-desync",
        "pp_stage_desync",
        _ONE,
        "pipeline stages left each other",
        ("PD0306", "PD0402", "PD0308"),
    ),
    _code(
        "PD0503",
        "blocking-io",
        "scheduler_blocked_on_sync_io",
        _ONE,
        "a scheduler waits in a blocking network call",
        ("PD0501", "PD0306", "PD0402"),
        drill="blocking-io",
    ),
    _code(
        "PD0504",
        "scheduler-stuck",
        "scheduler_deadlock",
        _ONE,
        "the scheduler has work and schedules nothing",
        ("PD0306", "PD0402", "PD0401"),
    ),
    _code(
        "PD0601",
        "gpu-collective",
        "gpu_collective_deadlock",
        _ONE,
        "ranks hang inside a forward pass",
        ("PD0102", "PD0103", "PD0602", "PD0306"),
    ),
    _code(
        "PD0602",
        "slow-kernel",
        "watchdog_timeout_slow_kernel",
        _CONFIG,
        "the watchdog killed a step that was only slow",
        ("PD0101", "PD0102"),
        is_wedge=False,
    ),
    _code(
        "PD0701",
        "gpu-fault",
        "gpu_fault_xid",
        Action.REPLACE_HOST,
        "a GPU reported a fault",
        ("PD0601", "PD0103", "PD0312", *_AFTER_CRASH),
        is_wedge=False,
    ),
    _code(
        "PD0702",
        "killed-for-memory",
        "oom",
        _CONFIG,
        "the kernel killed a process for memory",
        _AFTER_CRASH,
        is_wedge=False,
        drill="oom",
    ),
    _code("PD0703", "gpu-memory", "oom", _CONFIG, "the GPU ran out of memory", _AFTER_CRASH, is_wedge=False),
    _code(
        "PD0801",
        "no-worker",
        "router_no_healthy_worker",
        Action.RESTART_ROUTER,
        "the router sees no worker though workers live",
        ("PD0805",),
        is_wedge=False,
    ),
    _code(
        "PD0802",
        "misroute",
        "router_misroute",
        _CONFIG,
        "the router sends requests where they cannot be served",
        ("PD0801",),
        is_wedge=False,
    ),
    _code(
        "PD0803",
        "stale-registration",
        "stale_discovery_state",
        _ONE,
        "a registry and the running processes disagree",
        ("PD0801", "PD0802", "PD0805"),
        is_wedge=False,
    ),
    _code(
        "PD0805",
        "orphaned-requests",
        "orphaned_inflight_request",
        Action.RESTART_ROUTER,
        "the frontend waits for requests that no worker has",
        (),
    ),
    _code(
        "PD0901",
        "overload",
        "overload_not_wedge",
        Action.SCALE,
        "it is busy: queues are long and move",
        (),
        level=Level.WARNING,
        is_wedge=False,
        drill="overload",
    ),
    _code(
        "PD0902",
        "cold-start",
        "jit_or_cold_start",
        Action.WAIT,
        "it still loads, compiles or warms up",
        ("PD0801", "PD0101"),
        level=Level.WARNING,
        is_wedge=False,
        drill="cold-start",
    ),
    _code(
        "PD0903",
        "slow-load",
        "slow_weight_load",
        Action.WAIT,
        "it still loads weights, slowly",
        ("PD0801", "PD0101", "PD0902"),
        level=Level.WARNING,
        is_wedge=False,
    ),
    _code(
        "PD0904",
        "client-gone",
        "client_side",
        Action.NONE,
        "clients gave up; the engines work",
        (),
        level=Level.WARNING,
        is_wedge=False,
        drill="client-gone",
    ),
    _code(
        "PD0905",
        "short-timeout",
        "timeout_shorter_than_workload",
        _CONFIG,
        "a configured timeout is shorter than the work",
        ("PD0310",),
        level=Level.WARNING,
        is_wedge=False,
        drill="short-timeout",
    ),
    _code(
        "PD0906",
        "probe-kills",
        "probe_kills_busy_worker",
        _CONFIG,
        "a liveness probe kills a busy worker",
        ("PD0102", "PD0101", "PD0902", "PD0903"),
        level=Level.WARNING,
        is_wedge=False,
    ),
    _code(
        "PD0907",
        "no-traffic",
        "no_traffic",
        Action.NONE,
        "nothing is wrong: there is no traffic",
        (),
        level=Level.INFO,
        is_wedge=False,
    ),
)

_BY_CODE = {item.code: item for item in CATALOGUE}


def code_of(code: str) -> Code:
    """Return the entry of a code. Raises UsageError for one that does not exist."""
    try:
        return _BY_CODE[code.upper()]
    except KeyError:
        raise UsageError(f"there is no finding {code}", "`pdctl codes` lists them all") from None


def reachable(code: str) -> frozenset[str]:
    """Return every code that may follow from one, directly or through others."""
    seen: set[str] = set()
    pending = list(_BY_CODE[code].leads_to)
    while pending:
        item = pending.pop()
        if item not in seen:
            seen.add(item)
            pending.extend(_BY_CODE[item].leads_to)
    return frozenset(seen - {code})
