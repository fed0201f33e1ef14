"""Every drill: what is done, how one sees that it is there, what must be found, what cures it. One row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdctl.deployment.model import Role
from pdctl.drill import faults
from pdctl.drill.faults import hangs, thread_is_dead
from pdctl.drill.stage import Stage
from pdctl.errors import UsageError
from pdctl.load.profile import Profile, Range


class Cure(StrEnum):
    """What brings service back."""

    RESTART = "restart"
    """`pdctl snapshot-and-restart`."""
    FORCED = "forced restart"
    """The same with --force: requests still pass, and the gate protects who serves."""
    CONFIG = "correct the cause"
    """No restart helps until the cause is taken away."""
    NONE = "none"
    """Nothing is wrong with the engines: a restart must be refused."""


LIGHT = Profile(
    sessions=3, tool_rate=0, turns=Range(1, 2), prompt_tokens=Range(24, 160), output_tokens=Range(8, 32), seed=11
)
STEADY = Profile(
    sessions=3,
    tool_rate=0,
    turns=Range(1, 1),
    prompt_tokens=Range(24, 96),
    output_tokens=Range(8, 16),
    canary_rate=0.5,
    seed=12,
)
CROWD = Profile(
    sessions=48,
    tool_rate=0,
    turns=Range(1, 1),
    prompt_tokens=Range(200, 400),
    output_tokens=Range(32, 64),
    canary_rate=0,
    seed=13,
)
IMPATIENT = Profile(
    sessions=8,
    tool_rate=0,
    turns=Range(1, 1),
    prompt_tokens=Range(48, 96),
    output_tokens=Range(200, 300),
    canary_rate=0,
    abort_rate=0.9,
    abort_within_s=1.5,
    seed=14,
)
TALKATIVE = Profile(
    sessions=12,
    tool_rate=0,
    turns=Range(1, 1),
    prompt_tokens=Range(24, 48),
    output_tokens=Range(4, 1200),
    canary_rate=0,
    seed=15,
)
BOTH_SHORT: Mapping[Role, tuple[str, ...]] = {
    Role.PREFILL: ("--request-timeout", "4"),
    Role.DECODE: ("--request-timeout", "4"),
}

MANY_CHUNKS: Mapping[Role, tuple[str, ...]] = {Role.PREFILL: ("--chunk-tokens", "16", "--no-prefix-cache")}
"""The race is between a chunk and an abort: the more chunks, the sooner they meet."""


@dataclass(frozen=True, slots=True)
class Drill:
    """One row."""

    name: str
    code: str
    """What `pdctl diagnose` must name first."""
    what: str
    """What really happens."""
    cause: Callable[[Stage], None]
    is_there: Callable[[Stage], bool]
    proof: str
    """What `is_there` sees, in words."""
    cure: Cure = Cure.RESTART
    load: Profile = LIGHT
    """Runs from before the fault until the end; a fault may put another in its place."""
    flags: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    """More flags of the engines."""


DRILLS = (
    Drill(
        "mass-abort",
        "PD0301",
        "an agent is killed; prefill's control thread dies of the first ABORT",
        faults.mass_abort,
        lambda stage: thread_is_dead(stage, "prefill", "transfer-control") and hangs(stage),
        "prefill's control thread is down and a fresh request hangs",
    ),
    Drill(
        "abort-race",
        "PD0302",
        "prefill's transfer worker dies of a chunk whose room is gone",
        faults.abort_race,
        lambda stage: thread_is_dead(stage, "prefill", "transfer-nixl") and hangs(stage),
        "prefill's transfer thread is down and a fresh request hangs",
        flags=MANY_CHUNKS,
    ),
    Drill(
        "status-thread",
        "PD0303",
        "decode's status thread dies when frames of two rooms interleave",
        faults.status_thread,
        lambda stage: thread_is_dead(stage, "decode", "transfer-control") and hangs(stage),
        "decode's control thread is down and a fresh request hangs",
    ),
    Drill(
        "stuck-handle",
        "PD0304",
        "an aborted read never completes, and the transfer thread waits for it without bound",
        faults.stuck_handle,
        hangs,
        "a fresh request hangs",
    ),
    Drill(
        "silent-peer",
        "PD0305",
        "decode is stopped by SIGSTOP: alive for the kernel, dead for everybody else",
        faults.silent_peer,
        hangs,
        "a fresh request hangs",
    ),
    Drill(
        "decode-restart",
        "PD0307",
        "decode is restarted alone, and prefill goes on talking to the one that was",
        faults.decode_restart,
        hangs,
        "a fresh request hangs",
    ),
    Drill(
        "lost-failure",
        "PD0308",
        "decode's leg of a request fails, and prefill is not told",
        faults.lost_failure,
        faults.is_failure_lost,
        "prefill holds pages for a room that decode does not know",
        cure=Cure.FORCED,
    ),
    Drill(
        "corrupt-page",
        "PD0309",
        "pages land with wrong bytes, and every status is 200",
        faults.corrupt_page,
        faults.is_answer_wrong,
        "a canary's tokens are not the model's choice",
        load=STEADY,
    ),
    Drill(
        "starved",
        "PD0402",
        "all rooms wait for pages behind one that can never fit",
        faults.starved,
        hangs,
        "a fresh request hangs",
    ),
    Drill(
        "leak",
        "PD0403",
        "the pages of aborted requests are never freed",
        faults.leak,
        faults.is_leaked,
        "pages are taken though no request is left",
        cure=Cure.FORCED,
    ),
    Drill(
        "blocking-io",
        "PD0503",
        "decode's loop waits for an HTTP server that never answers",
        faults.blocking_io,
        hangs,
        "a fresh request hangs",
    ),
    Drill(
        "crash-loop",
        "PD0102",
        "decode's weights are gone: it is started again and again, and dies each time",
        faults.crash_loop,
        faults.is_crashing,
        "decode was started again twice, in vain",
        cure=Cure.CONFIG,
    ),
    Drill(
        "oom",
        "PD0702",
        "decode may use less memory than it needs: the kernel kills it",
        faults.oom,
        faults.is_crashing,
        "decode was started again twice, in vain",
        cure=Cure.CONFIG,
    ),
    Drill(
        "mismatch",
        "PD0201",
        "decode comes back with another page size",
        faults.mismatch,
        faults.is_refused,
        "one side refuses the other",
        cure=Cure.CONFIG,
    ),
    Drill(
        "overload",
        "PD0901",
        "more requests come than the engines can serve at once",
        faults.as_it_is,
        faults.is_queueing,
        "many requests wait, and requests end",
        cure=Cure.NONE,
        load=CROWD,
    ),
    Drill(
        "cold-start",
        "PD0902",
        "decode was started just now, and loads",
        faults.cold_start,
        faults.is_loading,
        "decode says that it loads",
        cure=Cure.NONE,
    ),
    Drill(
        "client-gone",
        "PD0904",
        "clients give up early; the engines work",
        faults.as_it_is,
        faults.clients_leave,
        "ten clients left by themselves",
        cure=Cure.NONE,
        load=IMPATIENT,
    ),
    Drill(
        "short-timeout",
        "PD0905",
        "the engines' own deadline is shorter than the answers are long",
        faults.as_it_is,
        faults.is_cut_short,
        "five requests ended before their answer did",
        cure=Cure.NONE,
        load=TALKATIVE,
        flags=BOTH_SHORT,
    ),
)


def drill_of(name: str) -> Drill:
    """Return the row of a drill. Raises UsageError for a name that has none."""
    for drill in DRILLS:
        if drill.name == name:
            return drill
    raise UsageError(f"there is no drill {name!r}", f"there are {', '.join(drill.name for drill in DRILLS)}")
