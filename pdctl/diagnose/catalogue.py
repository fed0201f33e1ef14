"""The finding codes: name, label, level, action, what follows from it. A code is never reused."""

# ruff: noqa: E501 - a table: one line a code.

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


_AFTER_DEATH = ("PD0306", "PD0307", "PD0308", "PD0310", "PD0311", "PD0801", "PD0803", "PD0805", "PD0402")
_AFTER_CRASH = ("PD0101", "PD0102", "PD0103", *_AFTER_DEATH)
_AFTER_MISMATCH = ("PD0101", "PD0102", "PD0306", "PD0308", "PD0309", "PD0310", "PD0312")
_AFTER_THREAD = ("PD0304", "PD0306", "PD0308", "PD0402", "PD0805")

# fmt: off
_ROWS: tuple[tuple[str, str, str, Action, str], ...] = (
    ("PD0101", "process-gone", "peer_down", Action.RESTART_INSTANCE, "an instance is gone"),
    ("PD0102", "crash-loop", "peer_crashloop", Action.FIX_CONFIG, "an instance dies again and again"),
    ("PD0103", "zombie", "zombie_parent", Action.RESTART_INSTANCE, "a rank is dead and its parent still answers"),
    ("PD0201", "layout-mismatch", "handshake_misconfig", Action.FIX_CONFIG, "the two sides disagree on page size or layout"),
    ("PD0202", "dtype-mismatch", "handshake_misconfig", Action.FIX_CONFIG, "the two sides keep KV in different types"),
    ("PD0203", "parallel-mismatch", "handshake_misconfig", Action.FIX_CONFIG, "this mix of tensor-parallel sizes is not supported"),
    ("PD0204", "wrong-port", "handshake_misconfig", Action.FIX_CONFIG, "a side dials a port where the other does not listen"),
    ("PD0205", "version-skew", "handshake_misconfig", Action.FIX_CONFIG, "the two sides speak different versions"),
    ("PD0206", "wrong-address", "handshake_misconfig", Action.FIX_CONFIG, "a transfer engine announces an address of another network"),
    ("PD0207", "wrong-engine", "handshake_misconfig", Action.FIX_CONFIG, "the handshake reaches another engine than it should"),
    ("PD0301", "bootstrap-thread-dead", "bootstrap_thread_dead", Action.RESTART_PAIR, "prefill's bootstrap thread is dead"),
    ("PD0302", "transfer-thread-dead", "transfer_thread_dead", Action.RESTART_PAIR, "a transfer worker is dead"),
    ("PD0303", "status-thread-dead", "decode_status_thread_dead", Action.RESTART_PAIR, "decode's status thread is dead"),
    ("PD0304", "stuck-handle", "transfer_engine_wedged_after_abort", Action.RESTART_PAIR, "an aborted transfer never ends and blocks the rest"),
    ("PD0305", "silent-peer", "peer_down", Action.RESTART_INSTANCE, "an instance is stopped: alive for the kernel, dead for its peers"),
    ("PD0306", "transfer-stuck", "transfer_stuck_in_progress", Action.RESTART_PAIR, "transfers stay in progress without end or error"),
    ("PD0307", "one-sided-restart", "stale_bootstrap_after_partial_restart", Action.RESTART_PAIR, "one side was restarted alone, the other keeps the old state"),
    ("PD0308", "lost-failure", "peer_failure_not_propagated", Action.RESTART_PAIR, "one side failed and the other was not told"),
    ("PD0309", "corrupt-page", "data_corruption_in_transfer", Action.RESTART_PAIR, "answers are wrong: KV arrived damaged or not at all"),
    ("PD0310", "transport-errors", "transfer_timeout_network", Action.RESTART_PAIR, "transfers fail on the network while both sides live"),
    ("PD0311", "session-blacklisted", "transfer_session_blacklisted", Action.RESTART_PAIR, "prefill refuses a healthy decode for an old failure"),
    ("PD0312", "native-crash", "native_crash_in_transfer_engine", Action.RESTART_INSTANCE, "the transfer library crashed its process"),
    ("PD0313", "late-read", "data_corruption_in_transfer", Action.FIX_CONFIG, "KV was read after its lease had ended"),
    ("PD0401", "kv-exhausted", "kv_cache_exhausted", Action.RESTART_PAIR, "KV memory is full and nothing frees it"),
    ("PD0402", "starved", "prealloc_starved", Action.RESTART_PAIR, "requests starve for decode pages"),
    ("PD0403", "kv-leak", "memory_or_kv_leak_after_abort", Action.RESTART_INSTANCE, "KV pages of ended requests are never freed"),
    ("PD0404", "host-memory-leak", "memory_or_kv_leak_after_abort", Action.RESTART_INSTANCE, "host memory of ended requests is never freed"),
    ("PD0405", "unservable-request", "unservable_request_head_of_line", Action.ABORT_ALL, "a request that can never fit blocks the queue"),
    ("PD0501", "desync", "tp_collective_desync", Action.RESTART_INSTANCE, "ranks left each other in the scheduler"),
    ("PD0502", "stage-desync", "pp_stage_desync", Action.RESTART_INSTANCE, "pipeline stages left each other"),
    ("PD0503", "blocking-io", "scheduler_blocked_on_sync_io", Action.RESTART_INSTANCE, "a scheduler waits in a blocking network call"),
    ("PD0504", "scheduler-stuck", "scheduler_deadlock", Action.RESTART_INSTANCE, "the scheduler has work and schedules nothing"),
    ("PD0601", "gpu-collective", "gpu_collective_deadlock", Action.RESTART_INSTANCE, "ranks hang inside a forward pass"),
    ("PD0602", "slow-kernel", "watchdog_timeout_slow_kernel", Action.FIX_CONFIG, "the watchdog killed a step that was only slow"),
    ("PD0701", "gpu-fault", "gpu_fault_xid", Action.REPLACE_HOST, "a GPU reported a fault"),
    ("PD0702", "killed-for-memory", "oom", Action.FIX_CONFIG, "the kernel killed a process for memory"),
    ("PD0703", "gpu-memory", "oom", Action.FIX_CONFIG, "the GPU ran out of memory"),
    ("PD0801", "no-worker", "router_no_healthy_worker", Action.RESTART_ROUTER, "the router sees no worker though workers live"),
    ("PD0802", "misroute", "router_misroute", Action.FIX_CONFIG, "the router sends requests where they cannot be served"),
    ("PD0803", "stale-registration", "stale_discovery_state", Action.RESTART_INSTANCE, "a registry and the running processes disagree"),
    ("PD0805", "orphaned-requests", "orphaned_inflight_request", Action.RESTART_ROUTER, "the frontend waits for requests that no worker has"),
    ("PD0901", "overload", "overload_not_wedge", Action.SCALE, "it is busy: queues are long and move"),
    ("PD0902", "cold-start", "jit_or_cold_start", Action.WAIT, "it still loads, compiles or warms up"),
    ("PD0903", "slow-load", "slow_weight_load", Action.WAIT, "it still loads weights, slowly"),
    ("PD0904", "client-gone", "client_side", Action.NONE, "clients gave up; the engines work"),
    ("PD0905", "short-timeout", "timeout_shorter_than_workload", Action.FIX_CONFIG, "a configured timeout is shorter than the work"),
    ("PD0906", "probe-kills", "probe_kills_busy_worker", Action.FIX_CONFIG, "a liveness probe kills a busy worker"),
    ("PD0907", "no-traffic", "no_traffic", Action.NONE, "nothing is wrong: there is no traffic"),
)

_LEADS_TO: dict[str, tuple[str, ...]] = {
    "PD0101": _AFTER_DEATH,
    "PD0102": ("PD0101", "PD0902", "PD0903", *_AFTER_DEATH),
    "PD0103": ("PD0101", "PD0304", *_AFTER_DEATH),
    "PD0201": _AFTER_MISMATCH,
    "PD0202": _AFTER_MISMATCH,
    "PD0203": _AFTER_MISMATCH,
    "PD0204": _AFTER_MISMATCH,
    "PD0205": _AFTER_MISMATCH,
    "PD0206": _AFTER_MISMATCH,
    "PD0207": _AFTER_MISMATCH,
    "PD0301": _AFTER_THREAD,
    "PD0302": _AFTER_THREAD,
    "PD0303": _AFTER_THREAD,
    "PD0304": ("PD0306", "PD0308", "PD0402", "PD0403"),
    "PD0305": _AFTER_DEATH,
    "PD0306": ("PD0308", "PD0401", "PD0402"),
    "PD0307": ("PD0306", "PD0308", "PD0310", "PD0311"),
    "PD0308": ("PD0306", "PD0402", "PD0401"),
    "PD0310": ("PD0306", "PD0308", "PD0311", "PD0401", "PD0402", "PD0309"),
    "PD0311": ("PD0308",),
    "PD0312": _AFTER_CRASH,
    "PD0401": ("PD0402",),
    "PD0402": ("PD0308",),
    "PD0403": ("PD0401", "PD0402", "PD0306"),
    "PD0404": ("PD0702",),
    "PD0501": ("PD0102", "PD0306", "PD0402", "PD0602", "PD0601"),
    "PD0502": ("PD0306", "PD0402", "PD0308"),
    "PD0503": ("PD0501", "PD0306", "PD0402"),
    "PD0504": ("PD0306", "PD0402", "PD0401"),
    "PD0601": ("PD0102", "PD0103", "PD0602", "PD0306"),
    "PD0602": ("PD0101", "PD0102"),
    "PD0701": ("PD0601", "PD0103", "PD0312", *_AFTER_CRASH),
    "PD0702": _AFTER_CRASH,
    "PD0703": _AFTER_CRASH,
    "PD0801": ("PD0805",),
    "PD0802": ("PD0801",),
    "PD0803": ("PD0801", "PD0802", "PD0805"),
    "PD0902": ("PD0801", "PD0101"),
    "PD0903": ("PD0801", "PD0101", "PD0902"),
    "PD0905": ("PD0310",),
    "PD0906": ("PD0102", "PD0101", "PD0902", "PD0903"),
}
"""Code -> codes that follow from it."""

_DRILLS = {
    "PD0102": "crash-loop",
    "PD0103": "zombie",
    "PD0201": "mismatch",
    "PD0301": "mass-abort",
    "PD0302": "abort-race",
    "PD0303": "status-thread",
    "PD0304": "stuck-handle",
    "PD0305": "silent-peer",
    "PD0307": "decode-restart",
    "PD0308": "lost-failure",
    "PD0309": "corrupt-page",
    "PD0402": "starved",
    "PD0403": "leak",
    "PD0501": "desync",
    "PD0503": "blocking-io",
    "PD0702": "oom",
    "PD0901": "overload",
    "PD0902": "cold-start",
    "PD0904": "client-gone",
    "PD0905": "short-timeout",
}

# Work that stands still under these waits for nobody to act on the engines: it ended, was refused, or is served.
_NO_WEDGE = frozenset((
    "PD0102", "PD0309", "PD0312", "PD0313", "PD0404", "PD0405", "PD0602", "PD0701", "PD0702",
    "PD0703", "PD0801", "PD0802", "PD0803", "PD0901", "PD0902", "PD0903", "PD0904", "PD0905",
    "PD0906", "PD0907",
))
# fmt: on


def _level(code: str) -> Level:
    """Return the level: what looks like a wedge and is none is at most a warning."""
    if code == "PD0907":
        return Level.INFO
    return Level.WARNING if code.startswith("PD09") else Level.ERROR


CATALOGUE: tuple[Code, ...] = tuple(
    Code(
        code=code,
        name=name,
        label=label,
        level=_level(code),
        action=action,
        title=title,
        leads_to=_LEADS_TO.get(code, ()),
        is_wedge=code not in _NO_WEDGE,
        drill=_DRILLS.get(code),
    )
    for code, name, label, action, title in _ROWS
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
