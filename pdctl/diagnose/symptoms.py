"""Symptoms, per unit of work: a queue of an instance, a router's requests, a probe. Never `the system`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge
from pdctl.evidence.model import Evidence
from pdctl.evidence.records import Place


class Symptom(StrEnum):
    STALLED = "stalled"
    """Outstanding work, no progress, not busy, for longer than patience."""
    SUSPECTED = "suspected"
    """The same, but one of these is unknown."""
    FAILING = "failing"
    """Half or more of the completions fail."""
    FAILURES = "failures"
    """Some requests fail."""
    GONE = "gone"
    """No process, nobody listens."""
    CRASHED = "crashed"
    """It ended without being asked, once or again and again."""
    STOPPED = "stopped"
    """Processes exist and do not run (state T), or nothing answers."""
    STARTING = "starting"
    """It loads or compiles, and cannot serve yet."""
    PROBE_TIMEOUT = "probe_timeout"
    PROBE_FAILED = "probe_failed"
    WRONG_OUTPUT = "wrong_output"
    DAMAGE = "damage"
    """An engine found that KV arrived wrong, or was read too late."""
    LEAK = "leak"
    """Memory in use that no request holds."""
    QUEUED = "queued"
    """Requests wait, and are served."""
    UNHEALTHY = "unhealthy"
    """A health endpoint says no, or not in time."""
    REFUSED = "refused"
    """The router turns requests away or sends them where nobody is."""
    ORPHANED = "orphaned"
    """The frontend waits for requests that no worker has."""
    STUCK_SUBSET = "stuck_subset"
    """A queue keeps a floor of entries while others pass."""
    UNEVEN = "uneven"
    """Instances of one role: some are idle while requests queue on others."""
    CLIENTS_LEFT = "clients_left"
    BYPASSED = "bypassed"
    """Decode computes prompts that prefill should have."""


class Observed(msgspec.Struct, frozen=True):
    """One symptom of one instance."""

    symptom: Symptom
    instance: str
    """Empty for a probe."""
    unit: str
    """The queue or endpoint."""
    text: str
    value: float | None = None
    place: Place | None = None


_PROGRESS: dict[Gauge, tuple[Counter, ...]] = {
    # Counters that a successful completion of this unit, or a later stage of it, moves. One that grew is enough.
    Gauge.BOOTSTRAP: (Counter.TRANSFERS_DONE, Counter.PREFILL_TOKENS, Counter.REQUESTS_DONE),
    Gauge.INFLIGHT: (Counter.TRANSFERS_DONE, Counter.REQUESTS_DONE),
    Gauge.PREALLOC: (Counter.ALLOCATIONS, Counter.REQUESTS_DONE),
    Gauge.TRANSFER: (Counter.TRANSFERS_DONE, Counter.EXTERNAL_TOKENS, Counter.REQUESTS_DONE),
    Gauge.RUNNING: (Counter.DECODE_TOKENS, Counter.STEPS),
    Gauge.WAITING: (Counter.STEPS, Counter.PREFILL_TOKENS, Counter.REQUESTS_DONE),
    Gauge.FETCH_DONE: (Counter.STEPS, Counter.REQUESTS_DONE),
    Gauge.HTTP_ACTIVE: (Counter.REQUESTS_DONE, Counter.DECODE_TOKENS, Counter.PREFILL_TOKENS),
    Gauge.FRONT_INFLIGHT: (Counter.REQUESTS_DONE, Counter.DECODE_TOKENS),
}
QUEUES = tuple(_PROGRESS)


class Unit(msgspec.Struct, frozen=True):
    """One queue and what is known of it."""

    view: InstanceView
    gauge: Gauge
    outstanding: float
    progress: bool | None
    place: Place
    is_confirmed: bool
    """The level comes from a live source, or a second source agrees with a frozen one."""
    span_s: float | None


def units_of(view: InstanceView, is_request_unanswered: bool) -> list[Unit]:
    """Return the queues of an instance that hold something."""
    found: list[Unit] = []
    if view.is_alive is False:
        return found
    for gauge in QUEUES:
        unit = _unit(view, gauge, is_request_unanswered)
        if unit is not None:
            found.append(unit)
    return found


def _unit(view: InstanceView, gauge: Gauge, is_request_unanswered: bool) -> Unit | None:
    reading, line = view.gauge(gauge), view.last_work
    level_in_log = line.levels.get(gauge, 0.0) if line else 0.0
    if reading is not None:
        outstanding, place = reading.value, reading.place
        live = view.gauge(Gauge.HTTP_ACTIVE)
        is_confirmed = (
            not reading.is_batch_written
            or is_request_unanswered
            or (live is not None and live.value > 0)
            or (level_in_log > 0 and live is None)
        )
    elif line is not None:
        # A log alone: its last line may be older than the end of the last request.
        outstanding, place, is_confirmed = level_in_log, line.place, is_request_unanswered
    else:
        return None
    if outstanding <= 0:
        return None
    span = view.interval_s
    if span is None or reading is None:
        span = view.age_s(line.at) if line else None
    return Unit(view, gauge, outstanding, progress(view, gauge), place, is_confirmed, span)


def progress(view: InstanceView, gauge: Gauge) -> bool | None:
    """Return whether requests leave this queue well."""
    rises = [rise.value for counter in _PROGRESS[gauge] if (rise := view.rise(counter)) is not None]
    return max(rises) > 0 if rises else _progress_in_log(view)


def _progress_in_log(view: InstanceView) -> bool | None:
    step = view.last_step
    age = view.age_s(step.at if step else None)
    if age is not None and age <= LIMITS.fresh_log_s:
        return True
    ends = view.age_s(view.log_ends_at)
    if not view.works or ends is None:
        return None
    return False if age is None or age > LIMITS.silence_s else None


def is_busy(view: InstanceView) -> bool | None:
    """Return whether it works on something that takes long: loading, compiling, steps that advance."""
    if view.is_starting:
        return True
    if view.is_router:
        return False
    steps = view.rise(Counter.STEPS)
    if steps is not None:
        return steps.value > 0 and not _is_idle_stepping(view)
    age = view.age_s(view.last_step.at if view.last_step else None)
    if age is not None:
        return age <= LIMITS.fresh_log_s
    return None


def _is_idle_stepping(view: InstanceView) -> bool:
    tokens = view.rise(Counter.DECODE_TOKENS), view.rise(Counter.PREFILL_TOKENS)
    return all(item is not None and item.value == 0 for item in tokens)


def stall_of(unit: Unit) -> Observed | None:
    """Judge one unit."""
    if unit.progress:
        return None
    busy = is_busy(unit.view)
    # Another stage of the same instance may work; this queue stalls all the same once patience is over.
    is_stage = unit.gauge in (
        Gauge.TRANSFER,
        Gauge.PREALLOC,
        Gauge.INFLIGHT,
        Gauge.BOOTSTRAP,
        Gauge.FETCH_DONE,
    )
    if busy and not (is_stage and unit.progress is False and not unit.view.is_starting):
        return None
    is_long = unit.span_s is not None and unit.span_s >= LIMITS.patience_s
    is_sure = unit.progress is False and busy is not None and is_long and unit.is_confirmed
    kind = Symptom.STALLED if is_sure else Symptom.SUSPECTED
    span = f" for {unit.span_s:.0f} s" if unit.span_s else ""
    text = f"{unit.outstanding:g} in {unit.gauge.value} of {unit.view.name}, none of them done{span}"
    return Observed(kind, unit.view.name, unit.gauge.value, text, unit.outstanding, unit.place)


def instance_symptoms(view: InstanceView) -> list[Observed]:
    """Return what is wrong with one instance as such."""
    found: list[Observed] = []

    def add(
        kind: Symptom, unit: str, text: str, value: float | None = None, place: Place | None = None
    ) -> None:
        found.append(Observed(kind, view.name, unit, f"{view.name}: {text}", value, place))

    if view.is_starting:
        add(Symptom.STARTING, "process", "still loads or compiles")
    elif view.is_alive is False:
        add(Symptom.GONE, "process", "no process answers")
    if any(item.state == "T" for item in view.processes):
        add(Symptom.STOPPED, "process", "its processes are stopped (state T)")
    elif view.is_hanging and view.is_alive is not True:
        add(Symptom.STOPPED, "http", "accepts connections and does not answer")
    age = view.age_of_process_s
    is_fresh = view.restarts() > 0 and (age is None or age < 2 * LIMITS.startup_s)
    if (
        is_fresh
        or view.ended is not None
        or any(_died(item.exit_code, item.signal) for item in view.processes)
    ):
        add(
            Symptom.CRASHED,
            "process",
            f"ended without being asked, {view.restarts()} restarts",
            view.restarts(),
        )
    health = view.get("/health", "/health_generate", "/readiness")
    if health is not None and health.status != 200 and view.is_alive is not False:
        add(Symptom.UNHEALTHY, health.path, f"{health.path} says {health.status or health.error}")
    found.extend(_failures(view))
    damage = view.events(Event.CORRUPTION, Event.LATE_READ)
    if damage and view.is_alive is not False:
        add(Symptom.DAMAGE, "kv", damage[-1].text[:100], len(damage), damage[-1].place)
    if view.events(Event.ROUTER_NO_WORKER, Event.ROUTER_UPSTREAM):
        add(Symptom.REFUSED, "router", "turns requests away or cannot reach a worker")
    if len(view.events(Event.CLIENT_GONE)) >= LIMITS.client_gone:
        add(
            Symptom.CLIENTS_LEFT,
            "http",
            f"{len(view.events(Event.CLIENT_GONE))} clients left before the answer",
        )
    return found


def _died(exit_code: int | None, signal: int | None) -> bool:
    return bool(exit_code) or signal is not None


def _failures(view: InstanceView) -> list[Observed]:
    failed = [
        rise.value
        for counter in (Counter.TRANSFERS_FAILED, Counter.BOOTSTRAPS_FAILED, Counter.REQUESTS_FAILED)
        if (rise := view.rise(counter)) is not None
    ]
    done = view.rise(Counter.REQUESTS_DONE)
    bad = max(failed, default=0.0)
    if done is None or not failed:
        return _logged_failures(view)
    if bad <= 0:
        return _logged_failures(view, fresh_s=LIMITS.onset_s)
    total = bad + done.value
    is_most = total >= LIMITS.failing_completions and bad / total >= LIMITS.failing_share
    kind = Symptom.FAILING if is_most else Symptom.FAILURES
    text = f"{view.name}: {bad:g} of {total:g} completions failed between the samples"
    return [Observed(kind, view.name, "requests", text, bad)]


_FAILURE_LINES = (Event.ROOM_FAILED, Event.TRANSFER_FAILED, Event.WRONG_PEER, Event.MISMATCH)


def _logged_failures(view: InstanceView, fresh_s: float | None = None) -> list[Observed]:
    """Judge by the log where no counter tells. With counters, fresh lines still tell: not every failure is counted."""
    lines = [item for item in view.events(*_FAILURE_LINES) if _is_fresh(view, item.at)]
    age = view.age_s(lines[-1].at) if lines else None
    if fresh_s is not None and (age is None or age > fresh_s):
        return []
    answers = [item for item in view.events(Event.ACCESS) if item.group("method") == "POST"]
    errors = [item for item in answers if item.group("status").startswith("5") and _is_fresh(view, item.at)]
    count = max(len(lines), len(errors))
    if count == 0:
        return []
    newest = answers[-2 * LIMITS.failing_completions :]
    bad = sum(1 for item in newest if item.group("status").startswith("5"))
    is_most = bad >= LIMITS.failing_completions and bad / len(newest) >= LIMITS.failing_share
    kind = Symptom.FAILING if is_most else Symptom.FAILURES
    text = f"{view.name}: {count} failures in its log"
    return [Observed(kind, view.name, "requests", text, count, (lines or errors)[0].place)]


def _is_fresh(view: InstanceView, at: datetime | None) -> bool:
    """Return whether a failure still tells: it is young, or nothing was done since."""
    age = view.age_s(at)
    step = view.last_step
    return (
        age is None or age <= LIMITS.onset_s or step is None or step.at is None or at is None or step.at <= at
    )


def probe_symptoms(evidence: Evidence) -> list[Observed]:
    """Return what the probes showed; a passed one shows nothing wrong."""
    found: list[Observed] = []
    for probe in evidence.probes:
        unit = probe.via or "probe"
        if probe.output == "garbled" and probe.status == 200:
            found.append(
                Observed(Symptom.WRONG_OUTPUT, "", unit, "the probe's answer was wrong, with status 200")
            )
        elif probe.timed_out:
            seconds = (probe.took_ms or probe.timeout_ms or 0) / 1000
            text = f"the probe through {unit} got no answer in {seconds:.0f} s"
            found.append(Observed(Symptom.PROBE_TIMEOUT, "", unit, text, seconds))
        elif probe.status is not None and probe.status != 200:
            found.append(
                Observed(Symptom.PROBE_FAILED, "", unit, f"the probe through {unit} got {probe.status}")
            )
        elif probe.error:
            found.append(Observed(Symptom.PROBE_FAILED, "", unit, f"the probe through {unit}: {probe.error}"))
    return found
