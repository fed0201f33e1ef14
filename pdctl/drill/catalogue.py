"""Every drill: what is done, how one sees that it is there, what must be found, what cures it. One row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdctl.deployment.model import Role
from pdctl.drill import faults, look_alikes, rank_faults
from pdctl.drill.faults import hangs, thread_is_dead
from pdctl.drill.loads import CROWD, IMPATIENT, LIGHT, STEADY, TALKATIVE
from pdctl.drill.stage import Stage
from pdctl.errors import UsageError
from pdctl.load.profile import Profile


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
    ranks: int = 1
    """Tensor-parallel ranks that each engine needs at least."""


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
        "desync",
        "PD0501",
        "an agent is killed; decode's ranks part: one waits in a collective that the other never enters",
        rank_faults.desync,
        rank_faults.have_parted,
        "decode's ranks stay at different steps while a fresh request hangs",
        ranks=2,
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
        "zombie",
        "PD0103",
        "a rank of decode is killed, and its parent goes on answering 200",
        rank_faults.zombie,
        lambda stage: rank_faults.lacks_a_rank(stage) and hangs(stage),
        "a rank of decode is gone and a fresh request hangs",
        ranks=2,
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
        look_alikes.as_it_is,
        look_alikes.is_queueing,
        "many requests wait, one of them for 8 s, and requests end",
        cure=Cure.NONE,
        load=CROWD,
    ),
    Drill(
        "cold-start",
        "PD0902",
        "decode was started just now, and loads",
        look_alikes.cold_start,
        look_alikes.is_loading,
        "decode says that it loads",
        cure=Cure.NONE,
    ),
    Drill(
        "client-gone",
        "PD0904",
        "clients give up early; the engines work",
        look_alikes.as_it_is,
        look_alikes.clients_leave,
        "ten clients left by themselves",
        cure=Cure.NONE,
        load=IMPATIENT,
    ),
    Drill(
        "short-timeout",
        "PD0905",
        "the engines' own deadline is shorter than the answers are long",
        look_alikes.as_it_is,
        look_alikes.is_cut_short,
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
