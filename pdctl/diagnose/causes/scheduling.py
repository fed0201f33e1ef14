"""PD0501-PD0504, PD0601: ranks left each other, or stand together and do not move."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import (
    abort_burst,
    is_standing_still,
    kv_usage,
    level,
    logged,
    room_failures,
    silent_s,
    stands,
)
from pdctl.diagnose.ranks import (
    Split,
    Stand,
    blocking_call,
    handle_wait,
    is_in_collective,
    is_in_forward,
    lock_wait,
    waits_for_input,
)
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge

_EXPLAINS = (*STALLS, *FAILURES, Symptom.CRASHED, Symptom.UNHEALTHY, Symptom.STARTING, Symptom.STUCK_SUBSET)


def _has_ranks(case: Case, view: InstanceView) -> Answer:
    sizes = [size for size in (view.raw.tp, view.raw.dp, view.raw.pp) if size is not None]
    now, before = stands(view)
    seen = max((stand.ranks for stand in (now, before) if stand), default=0)
    if seen > 1 or any(size > 1 for size in sizes):
        return yes(f"{view.name} has several ranks", Kind.TOPOLOGY, value=max([*sizes, seen]))
    if view.raw.tp == 1 and not any(size > 1 for size in sizes):
        return no(f"{view.name} has one rank", Kind.TOPOLOGY, value=1)
    return unknown(f"the number of ranks of {view.name} is not known")


def _settled(case: Case, view: InstanceView, wanted: Split) -> Answer:
    """Ask whether the ranks are split this way for good: two dumps agree, or one dump of an engine that stands."""
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None and stand.ranks > 1]
    if not dumps:
        return unknown(f"no stacks of several ranks of {view.name}")
    other = [stand for stand in dumps if stand.split is not wanted]
    if other:
        return no(
            f"{view.name}: ranks are {other[0].split.value}: {other[0].text()}",
            Kind.STACKS,
            other[0].groups[0].place,
        )
    if len(dumps) == 2 and not _agree(dumps[0], dumps[1]):
        return unknown("the two dumps differ: the ranks move")
    if len(dumps) == 1 and not is_standing_still(case, view):
        return unknown("one dump of a moving engine proves nothing")
    return yes(f"{view.name}: {dumps[0].text()}", Kind.STACKS, dumps[0].groups[0].place, len(dumps[0].groups))


def _agree(one: Stand, other: Stand) -> bool:
    """Return whether some rank waits in the same collective in both dumps while another stands elsewhere in both."""
    places = [{rank: group.path for group in stand.groups for rank in group.ranks} for stand in (one, other)]
    shared = [rank for rank in places[0] if rank in places[1]]
    return any(places[0][rank] == places[1][rank] for rank in shared)


def _is_pipeline(view: InstanceView) -> bool:
    return (view.raw.pp or 1) > 1


def _split_in_control(case: Case, view: InstanceView) -> Answer:
    return _settled(case, view, Split.CONTROL)


def _sets_differ(case: Case, view: InstanceView) -> Answer:
    """Ranks decided for themselves: the requests they timed out are not the same."""
    by_rank: dict[str, set[str]] = {}
    events = view.end_events(Event.WAITING_TIMEOUT)
    for item in events:
        by_rank.setdefault(item.rank, set()).add(item.group("rid"))
    if len(by_rank) < 2:
        return unknown("no rank tells which requests it gave up")
    sizes = {rank: len(rids) for rank, rids in by_rank.items()}
    if len({frozenset(rids) for rids in by_rank.values()}) == 1:
        return no(
            f"all {len(by_rank)} ranks gave up the same {next(iter(sizes.values()))} requests", Kind.LOG
        )
    small, big = min(sizes, key=lambda rank: sizes[rank]), max(sizes, key=lambda rank: sizes[rank])
    return yes(
        f"{big} gave up {sizes[big]} requests, {small} {sizes[small]}: ranks of {view.name} decided alone",
        Kind.LOG,
        events[-1].place,
        len(by_rank),
    )


def _different_collectives(case: Case, view: InstanceView) -> Answer:
    found = view.end_events(Event.COLLECTIVE_MISMATCH)
    if found:
        return yes(f"{view.name}: {found[-1].text[:110]}", Kind.LOG, found[-1].place)
    return unknown("no collective complains about sizes")


def _one_rank_prints(case: Case, view: InstanceView) -> Answer:
    """Some ranks went on printing steps after others had stopped."""
    last: dict[str, float] = {}
    for work in view.works:
        age = view.age_s(work.at)
        if age is not None:
            last[work.rank] = age
    if len(last) < 2:
        return unknown("one rank prints for all")
    spread = max(last.values()) - min(last.values())
    if spread >= LIMITS.silence_s and min(last.values()) >= LIMITS.silence_s:
        return yes(f"ranks of {view.name} stopped {spread:.0f} s apart", Kind.LOG, value=spread, unit="s")
    return unknown("all ranks stopped together")


DESYNC = Analyzer(
    code="PD0501",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.TOPOLOGY, Kind.METRICS, Kind.HTTP, Kind.PROBE),
    explains=_EXPLAINS,
    checks=(
        requires("it has several ranks", _has_ranks),
        proves(
            "ranks stand at different points of the scheduler",
            lambda case, view: _not_pipeline(view, _split_in_control(case, view)),
        ),
        proves("ranks gave up different requests", _sets_differ),
        proves("a collective met another of a different size", _different_collectives),
        suggests(
            "a collective timed out",
            lambda case, view: logged(view, Event.COLLECTIVE_TIMEOUT, what="a collective that timed out"),
        ),
        suggests("ranks stopped at different times", _one_rank_prints),
    ),
)


def _not_pipeline(view: InstanceView, answer: Answer) -> Answer:
    """Stages of a pipeline stand at different points by nature."""
    return unknown("pipeline stages stand at different points anyway") if _is_pipeline(view) else answer


# PD0502


def _has_stages(case: Case, view: InstanceView) -> Answer:
    printed = [*(work.rank for work in view.works), *(item.rank for item in view.occurrences)]
    ranks = {word for rank in printed for word in rank.split() if word.startswith("PP")}
    if _is_pipeline(view) or len(ranks) > 1:
        return yes(f"{view.name} has pipeline stages", Kind.TOPOLOGY, value=view.raw.pp)
    if view.raw.pp == 1 or (view.has_log and view.raw.pp is None and not ranks):
        return no(f"{view.name} has one stage", Kind.TOPOLOGY, value=1)
    return unknown(f"the stages of {view.name} are not known")


def _stage(rank: str) -> str:
    return next((word for word in rank.split() if word.startswith("PP")), "")


def _stages_disagree(case: Case, view: InstanceView) -> Answer:
    """One stage failed a request that another ran, and nobody printed a step since."""
    failures = room_failures(view)
    stages = {_stage(item.rank) for item in failures} - {""}
    others = {_stage(item.rank) for item in view.works} - stages - {""}
    silence = silent_s(view)
    if not failures or not stages or silence is None or silence < LIMITS.silence_s:
        return unknown("no stage failed a request alone, or steps go on")
    first = failures[-1]
    together = [
        work
        for work in view.works
        if _stage(work.rank) in others
        and work.at
        and first.at
        and abs((work.at - first.at).total_seconds()) <= LIMITS.same_second_s
    ]
    if together or others:
        return yes(
            f"{view.name}: {', '.join(sorted(stages))} failed a request, "
            f"{', '.join(sorted(others)) or 'others'} ran on; silent for {silence:.0f} s",
            Kind.LOG,
            first.place,
            silence,
            "s",
        )
    return unknown("all stages failed the same requests")


def _stage_split(case: Case, view: InstanceView) -> Answer:
    if not _is_pipeline(view):
        return unknown("no pipeline")
    return _split_in_control(case, view)


STAGES = Analyzer(
    code="PD0502",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.TOPOLOGY, Kind.METRICS, Kind.HTTP, Kind.PROBE),
    explains=_EXPLAINS,
    checks=(
        requires("it has pipeline stages", _has_stages),
        proves("a stage failed what another ran", _stages_disagree),
        suggests("stages stand at different points", _stage_split),
        suggests("a burst of aborts came before", abort_burst),
    ),
)


# PD0503


def _blocked(case: Case, view: InstanceView) -> Answer:
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None]
    if not dumps:
        return unknown(f"no stacks of {view.name}")
    found = []
    for stand in dumps:
        calls = [
            (group, call)
            for group in stand.groups
            if not waits_for_input(group.thread) and (call := blocking_call(group.thread))
        ]
        if not calls:
            return no(
                f"no scheduler of {view.name} waits in a blocking call", Kind.STACKS, stand.groups[0].place
            )
        found.append(calls[0])
    if len(dumps) == 1 and not is_standing_still(case, view):
        return unknown("one dump of a moving engine proves nothing")
    group, call = found[0]
    own = next((function for function in reversed(group.path)), call)
    return yes(
        f"{', '.join(group.ranks[:4])} of {view.name} wait in {call} under {own}",
        Kind.STACKS,
        group.place,
        len(group.ranks),
    )


def _unreachable_info(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.REGISTRY_UNREACHABLE, Event.PEER_LOST, what="a peer that cannot be asked")


def _loop_unanswered(case: Case, view: InstanceView) -> Answer:
    answer = view.get("/server_info", "/get_server_info", "/health", "/health_generate")
    if answer is None:
        return unknown(f"nobody asked {view.name}")
    if answer.error == "timeout" or (answer.status is not None and answer.status >= 500):
        return yes(f"{answer.path} of {view.name}: {answer.error or answer.status}", Kind.HTTP)
    return no(f"{answer.path} of {view.name} answers", Kind.HTTP)


BLOCKED = Analyzer(
    code="PD0503",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.HTTP, Kind.METRICS, Kind.PROBE),
    explains=_EXPLAINS,
    checks=(
        proves("a scheduler waits in a blocking call", _blocked),
        suggests("its loop does not answer", _loop_unanswered),
        suggests("a peer cannot be asked", _unreachable_info),
    ),
)


# PD0504


def _loaded_and_still(case: Case, view: InstanceView) -> Answer:
    """KV has landed, nothing runs, no step happens: the scheduler does not look."""
    done, running = view.gauge(Gauge.FETCH_DONE), view.gauge(Gauge.RUNNING)
    steps = view.rise(Counter.STEPS)
    if done is None or running is None or steps is None:
        return unknown(f"{view.name} does not tell of landed requests")
    text = (
        f"{done.value:g} requests of {view.name} have their KV, {running.value:g} run, {steps.value:g} steps"
    )
    before = view.gauge_before(Gauge.FETCH_DONE)
    if done.value > 0 and running.value == 0 and steps.value == 0 and before is not None and before.value > 0:
        return yes(text, Kind.METRICS, done.place, done.value)
    return no(text, Kind.METRICS, done.place, done.value)


def _lock(case: Case, view: InstanceView) -> Answer:
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None]
    if not dumps:
        return unknown(f"no stacks of {view.name}")
    waits = [
        [
            name
            for group in stand.groups
            if (name := lock_wait(group.thread)) and not is_in_collective(group.thread)
        ]
        for stand in dumps
    ]
    if not all(waits):
        return no(f"no scheduler of {view.name} waits for a lock", Kind.STACKS, dumps[0].groups[0].place)
    if len(dumps) == 1 and not is_standing_still(case, view):
        return unknown("one dump of a moving engine proves nothing")
    return yes(
        f"a scheduler of {view.name} waits for a lock in {waits[0][0]}", Kind.STACKS, dumps[0].groups[0].place
    )


def _has_work(case: Case, view: InstanceView) -> Answer:
    usage = kv_usage(view)
    waiting, running = level(view, Gauge.WAITING), level(view, Gauge.RUNNING)
    steps = view.rise(Counter.STEPS)
    if waiting is None or steps is None:
        return unknown(f"queue and steps of {view.name} are not known")
    text = f"{waiting:g} wait on {view.name}, {running or 0:g} run, {steps.value:g} steps"
    if (
        waiting > 0
        and running == 0
        and steps.value == 0
        and usage is not None
        and LIMITS.gpu_idle_percent / 100 < usage[0] < LIMITS.kv_full
    ):
        return yes(text, Kind.METRICS, steps.place, waiting)
    return unknown(text)


DEADLOCK = Analyzer(
    code="PD0504",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.STACKS, Kind.LOG, Kind.HTTP, Kind.PROBE),
    explains=_EXPLAINS,
    checks=(
        proves("landed requests are never scheduled", _loaded_and_still),
        proves("a scheduler waits for a lock", _lock),
        suggests("it has work and room, and no step happens", _has_work),
    ),
)


# PD0601


def _split_in_forward(case: Case, view: InstanceView) -> Answer:
    return _settled(case, view, Split.FORWARD)


def _together_in_collective(case: Case, view: InstanceView) -> Answer:
    """Every rank stands in the same forward pass or device wait in both dumps."""
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None and stand.ranks > 1]
    if not dumps:
        return unknown(f"no stacks of {view.name}")
    threads = [group.thread for stand in dumps for group in stand.groups]
    if any(stand.split is not Split.TOGETHER for stand in dumps) or any(
        waits_for_input(thread) or handle_wait(thread) for thread in threads
    ):
        return unknown("the ranks do not stand together in a forward pass")
    if not any(is_in_forward(thread) for thread in threads):
        return unknown("the ranks are in no forward pass")
    if len(dumps) < 2:
        return unknown("one dump cannot tell slow from stuck")
    return yes(f"all ranks of {view.name} stay in {dumps[0].text()}", Kind.STACKS, dumps[0].groups[0].place)


def _device_collective_timeout(case: Case, view: InstanceView) -> Answer:
    found = [item for item in view.end_events(Event.COLLECTIVE_TIMEOUT) if "ms for" not in item.text]
    if found:
        return yes(f"{view.name}: {found[-1].text[:110]}", Kind.LOG, found[-1].place)
    return unknown("no device collective timed out")


def _spins(case: Case, view: InstanceView) -> Answer:
    loads = [gpu.util_percent for gpu in view.raw.gpus if gpu.util_percent is not None]
    if not loads:
        return unknown(f"the GPUs of {view.name} are not known")
    silence = silent_s(view)
    text = (
        f"GPUs of {view.name} at {min(loads):.0f}-{max(loads):.0f} % without a step for {silence or 0:.0f} s"
    )
    if min(loads) >= LIMITS.gpu_spin_percent and silence is not None and silence >= LIMITS.silence_s:
        return yes(text, Kind.GPU, value=min(loads), unit="%")
    return no(text, Kind.GPU, value=min(loads), unit="%")


def _ranks_wait(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.WORKER_SILENT, Event.WATCHDOG, what="ranks that wait for each other")


GPU = Analyzer(
    code="PD0601",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.GPU, Kind.HTTP, Kind.METRICS, Kind.PROBE, Kind.TOPOLOGY),
    explains=_EXPLAINS,
    checks=(
        requires("it has several ranks", _has_ranks),
        requires(
            "the ranks did not part in the scheduler",
            lambda case, view: _invert(_split_in_control(case, view)),
        ),
        proves("ranks stand at different points of one forward pass", _split_in_forward),
        proves("all ranks stay in one forward pass", _together_in_collective),
        proves("a device collective timed out", _device_collective_timeout),
        suggests("GPUs spin without a step", _spins),
        suggests("ranks wait for each other", _ranks_wait),
    ),
)


def _invert(answer: Answer) -> Answer:
    if answer.is_true:
        return no(answer.text, answer.kind or Kind.STACKS, answer.place)
    return yes(answer.text, answer.kind or Kind.STACKS) if answer.is_false else answer


ANALYZERS = (DESYNC, STAGES, BLOCKED, DEADLOCK, GPU)
