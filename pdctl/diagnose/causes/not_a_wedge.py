"""PD0901-PD0907: it looks like a wedge and is none."""

from __future__ import annotations

from pdctl.diagnose.analyzer import (
    DEATHS,
    ENGINES,
    EVERYONE,
    FAILURES,
    STALLS,
    Analyzer,
    proves,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.hidden import is_idle
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import logged, quantised, room_failures
from pdctl.diagnose.symptoms import Symptom, is_busy
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge
from pdctl.evidence.records import Place

_TROUBLE = (
    Symptom.STALLED, Symptom.STUCK_SUBSET, Symptom.LEAK, Symptom.WRONG_OUTPUT, Symptom.GONE, Symptom.STOPPED,
    Symptom.FAILING, Symptom.ORPHANED, Symptom.BYPASSED, Symptom.UNEVEN,
)  # fmt: skip


# PD0901


def _moves(case: Case, view: InstanceView) -> Answer:
    if case.is_moving is None:
        return unknown("nothing tells whether requests complete")
    return (yes if case.is_moving else no)(
        "requests complete" if case.is_moving else "no request completes", case.kind_of_moving
    )


def _no_trouble(case: Case, view: InstanceView) -> Answer:
    trouble = next((item for item in case.symptoms if item.symptom in _TROUBLE), None)
    if trouble is not None:
        return no(trouble.text, Kind.METRICS, trouble.place)
    level = next(
        (item for item in case.symptoms if item.symptom is Symptom.SUSPECTED and item.unit == "transfer"),
        None,
    )
    if level is not None:
        return unknown(level.text)
    failed = next(
        (rise for one in case.engines if (rise := one.rise(Counter.TRANSFERS_FAILED)) and rise.value > 0),
        None,
    )
    if failed is not None:
        return no(f"{failed.value:g} transfers failed meanwhile", Kind.METRICS, failed.place, failed.value)
    return yes("nothing stands still, leaks or fails", Kind.METRICS)


def _queues_long(case: Case, view: InstanceView) -> Answer:
    queued = [item for item in case.symptoms if item.symptom is Symptom.QUEUED and item.instance == view.name]
    total = sum(item.value or 0 for item in queued)
    if queued and total >= 2:
        is_log = queued[0].place is not None and "/log" in queued[0].place.file
        return yes(queued[0].text, Kind.LOG if is_log else Kind.METRICS, queued[0].place, total)
    running = view.gauge(Gauge.RUNNING)
    if case.symptom_of(view, Symptom.UNHEALTHY) and running is not None and running.value > 0:
        return yes(
            f"{view.name} runs {running.value:g} requests and answers its health check late",
            Kind.METRICS,
            running.place,
            running.value,
        )
    return unknown(f"{view.name} has no long queue")


def _batches_go_on(case: Case, view: InstanceView) -> Answer:
    steps = view.rise(Counter.STEPS) or view.rise(Counter.DECODE_TOKENS) or view.rise(Counter.PREFILL_TOKENS)
    age = view.age_s(view.last_step.at if view.last_step else None)
    if age is not None and age <= LIMITS.silence_s:
        return yes(
            f"{view.name} printed a step {age:.0f} s before the capture",
            Kind.LOG,
            view.last_step.place if view.last_step else None,
            age,
            "s",
        )
    if steps is not None and steps.value > 0:
        return yes(f"{view.name} made steps between the samples", Kind.METRICS, steps.place, steps.value)
    return unknown(f"no fresh step of {view.name} is known")


OVERLOAD = Analyzer(
    code="PD0901",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.LOG, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(
        Symptom.QUEUED,
        Symptom.UNHEALTHY,
        Symptom.CLIENTS_LEFT,
        Symptom.REFUSED,
        Symptom.SUSPECTED,
        Symptom.PROBE_FAILED,
    ),
    checks=(
        requires("requests complete", _moves),
        requires("nothing is in trouble", _no_trouble),
        requires("queues are long", _queues_long),
        suggests("queues are long", _queues_long),
        suggests("requests complete", _moves),
        suggests("steps go on", _batches_go_on),
    ),
)


# PD0902, PD0903


def _starting(case: Case, view: InstanceView) -> Answer:
    if view.is_starting is None:
        return unknown(f"no start-up lines of {view.name}")
    if not view.is_starting:
        done = view.total(Counter.REQUESTS_DONE)
        if len(view.works) > 2 or (done is not None and done.value > LIMITS.failing_completions):
            return no(f"{view.name} has started, and worked", Kind.LOG)
        return unknown(f"{view.name} has started; whether it still warms up is not known")
    silence = view.age_s(view.log_ends_at)
    if silence is not None and silence > LIMITS.slow_load_s and not _in_disk_wait(view):
        return unknown(f"{view.name} is starting, and silent for {silence:.0f} s")
    return yes(f"{view.name} loads, compiles or warms up", Kind.LOG, value=view.age_of_process_s, unit="s")


def _in_disk_wait(view: InstanceView) -> bool:
    return any(item.state == "D" for item in view.processes)


def _is_loading_weights(view: InstanceView) -> bool:
    marks = view.events(Event.LOADING, Event.LOADED, Event.COMPILING)
    return bool(marks) and marks[-1].event is Event.LOADING


def _young(case: Case, view: InstanceView) -> Answer:
    age = view.age_of_process_s
    if age is None:
        return unknown(f"the age of {view.name} is not known")
    text = f"{view.name} lives {age / 60:.0f} min"
    return (yes if age < LIMITS.startup_s else no)(text, Kind.PROCESS, value=age, unit="s")


def _nothing_done_yet(case: Case, view: InstanceView) -> Answer:
    done = view.total(Counter.REQUESTS_DONE)
    if done is not None:
        return (yes if done.value == 0 else no)(
            f"{view.name} has completed {done.value:g} requests", Kind.METRICS, done.place, done.value
        )
    return unknown(f"completions of {view.name} are not known")


COLD = Analyzer(
    code="PD0902",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.PROCESS, Kind.METRICS, Kind.HTTP),
    explains=(*STALLS, *FAILURES, *DEATHS, Symptom.STARTING, Symptom.UNHEALTHY),
    checks=(
        requires("it is starting", _starting),
        proves("its newest lines load or compile", _starting),
        suggests("it is young", _young),
        suggests("it has completed nothing", _nothing_done_yet),
    ),
)


def _loads_long(case: Case, view: InstanceView) -> Answer:
    if not view.is_starting or not _is_loading_weights(view):
        return unknown(f"{view.name} loads no weights")
    first = next(iter(view.events(Event.LOADING)), None)
    age = view.age_s(first.at if first else None)
    if _in_disk_wait(view) or (age is not None and age >= LIMITS.slow_load_s):
        disk = ", its processes wait for the disk (state D)" if _in_disk_wait(view) else ""
        return yes(
            f"{view.name} has loaded weights for {age or 0:.0f} s{disk}",
            Kind.LOG,
            first.place if first else None,
            age,
            "s",
        )
    return unknown("it has not loaded for long")


SLOW_LOAD = Analyzer(
    code="PD0903",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.PROCESS),
    explains=(*STALLS, *FAILURES, *DEATHS, Symptom.STARTING, Symptom.UNHEALTHY),
    checks=(proves("it loads weights for long", _loads_long),),
)


# PD0904


def _clients_left(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.CLIENT_GONE)
    if len(found) >= LIMITS.client_gone:
        return yes(
            f"{len(found)} clients left {view.name}: {found[-1].text[:90]}",
            Kind.LOG,
            found[-1].place,
            len(found),
        )
    return unknown(f"no clients are known to have left {view.name}")


def _engines_work(case: Case, view: InstanceView) -> Answer:
    busy = [one for one in case.engines if is_busy(one)]
    if case.is_moving or busy:
        return yes("the engines work", Kind.METRICS)
    if any(case.stepped_during(probe) for probe in case.probes):
        return yes("the engines worked while the probes waited", Kind.LOG)
    return (
        no("no engine is known to work", Kind.METRICS)
        if case.is_moving is False
        else unknown("nothing tells whether the engines work")
    )


def _probe_ran_out(case: Case, view: InstanceView) -> Answer:
    """A probe ran out of its own time while the last stage went on."""
    for probe in case.probes:
        if probe.timed_out and case.stepped_during(probe):
            seconds = (probe.timeout_ms or probe.took_ms or 0) / 1000
            return yes(
                f"a request gave up after {seconds:.0f} s while the engine worked on it",
                Kind.PROBE,
                value=seconds,
                unit="s",
            )
    return unknown("no probe ran out of time while the engine worked")


CLIENT = Analyzer(
    code="PD0904",
    roles=EVERYONE,
    inputs=(Kind.LOG, Kind.METRICS, Kind.PROBE, Kind.HTTP, Kind.PROCESS),
    explains=(Symptom.CLIENTS_LEFT, *FAILURES, Symptom.QUEUED, Symptom.SUSPECTED, Symptom.PROBE_TIMEOUT),
    checks=(
        requires("the engines work", _engines_work),
        suggests("clients left", _clients_left),
        suggests("a probe ran out of its own time", _probe_ran_out),
        suggests("the engines work", _engines_work),
    ),
)


# PD0905


def _ends_by_setting(case: Case, view: InstanceView) -> Answer:
    lines = view.events(Event.TRANSFER_DEADLINE)
    quantum = quantised(lines)
    if quantum is None:
        return unknown("no series of transfers ended by one clock")
    return yes(
        f"{quantum[1]} transfers of {view.name} ended exactly {quantum[0]:.0f} s after they began",
        Kind.LOG,
        lines[-1].place,
        quantum[0],
        "s",
    )


def _short_setting(case: Case, view: InstanceView) -> Answer:
    source = view.raw.source
    for key, value in (source.env if source else {}).items():
        if "TIMEOUT" not in key.upper():
            continue
        seconds = (
            float(value) / (1000 if key.endswith("_ms") else 1) if value.replace(".", "").isdigit() else None
        )
        if seconds is not None and seconds < 300 and _near(view, seconds):
            return yes(
                f"{view.name} has {key}={value}, and requests end after it",
                Kind.SOURCE,
                Place(f"{view.name}/source.toml", pointer=key),
                seconds,
                "s",
            )
    return unknown("no timeout that was set fits the ends")


def _near(view: InstanceView, seconds: float) -> bool:
    quantum = quantised((*view.events(Event.TRANSFER_DEADLINE), *room_failures(view, "timed out")))
    return quantum is not None and abs(quantum[0] - seconds) <= LIMITS.quantum_tolerance_s * 2


def _router_gives_up(case: Case, view: InstanceView) -> Answer:
    """Requests fail at the router after one and the same time."""
    for router in case.routers:
        failed = tuple(item for item in router.events(Event.ACCESS) if item.group("status").startswith("5"))
        quantum = quantised(failed)
        if quantum is not None and quantum[0] >= LIMITS.patience_s:
            return yes(
                f"{quantum[1]} requests failed at {router.name} after {quantum[0]:.0f} s each",
                Kind.LOG,
                failed[-1].place,
                quantum[0],
                "s",
            )
    return unknown("no series of requests fails at a router after one time")


def _steps_go_on(case: Case, view: InstanceView) -> Answer:
    for one in case.engines:
        answer = _batches_go_on(case, one)
        if answer.is_true:
            return answer
    return unknown("no fresh step is known")


SHORT = Analyzer(
    code="PD0905",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.SOURCE, Kind.METRICS),
    explains=(*FAILURES, *STALLS, Symptom.CLIENTS_LEFT),
    checks=(
        requires("steps go on", _steps_go_on),
        proves("transfers end by a configured clock", _ends_by_setting),
        suggests("a timeout that was set fits the ends", _short_setting),
        suggests("requests fail at the router after one time", _router_gives_up),
        suggests("steps go on", _steps_go_on),
    ),
)


# PD0906


def _killed_by_probe(case: Case, view: InstanceView) -> Answer:
    killed = view.end_events(Event.LIVENESS_KILLED)
    if not killed:
        return unknown("no liveness probe killed it")
    before = [
        item
        for item in view.end_events(Event.COMPILING, Event.LOADING)
        if item.at and killed[0].at and 0 <= (killed[0].at - item.at).total_seconds() <= 600
    ]
    if before or view.works or view.all_works:
        return yes(
            f"{view.name} was busy when: {killed[0].text[:90]}", Kind.LOG, killed[0].place, len(killed)
        )
    return unknown("it is not known to have been busy")


PROBE = Analyzer(
    code="PD0906",
    roles=ENGINES,
    inputs=(Kind.LOG,),
    explains=(*DEATHS, Symptom.UNHEALTHY, Symptom.STARTING),
    checks=(
        proves("a liveness probe killed a busy worker", _killed_by_probe),
        suggests(
            "liveness probes fail",
            lambda case, view: logged(view, Event.LIVENESS_FAILED, what="a failed liveness probe"),
        ),
    ),
)


# PD0907


def _all_idle(case: Case, view: InstanceView) -> Answer:
    states = [is_idle(one) for one in case.engines]
    if states and all(states):
        return yes("every queue is empty", Kind.METRICS, value=0)
    return (
        no("queues hold requests", Kind.METRICS) if False in states else unknown("the queues are not known")
    )


def _probe_passed(case: Case, view: InstanceView) -> Answer:
    probe = case.last_probe
    if probe is None:
        return unknown("the path is not proven: no probe was sent")
    return (yes if probe.passed else no)(
        f"the probe {'passed' if probe.passed else 'failed'}", Kind.PROBE, value=probe.took_ms, unit="ms"
    )


IDLE = Analyzer(
    code="PD0907",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.PROBE, Kind.LOG, Kind.HTTP, Kind.PROCESS),
    explains=(),
    checks=(
        requires("every queue is empty", _all_idle),
        requires("the probe passed", _probe_passed),
        requires("nothing is in trouble", _no_trouble),
        suggests("every queue is empty", _all_idle),
        suggests("the probe passed", _probe_passed),
    ),
)
ANALYZERS = (OVERLOAD, COLD, SLOW_LOAD, CLIENT, SHORT, PROBE, IDLE)
