"""Symptoms, per unit of work: a queue of an instance, a router's requests, a probe. Never `the system`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.reading import Rise
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Gauge
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


PROGRESS: dict[Gauge, tuple[Counter, ...]] = {
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
QUEUES = tuple(PROGRESS)
_PASSED_BY_POLLS = (Gauge.BOOTSTRAP, Gauge.HTTP_ACTIVE)
"""A health check is served though nothing moves here: it meets no peer, and is no request of a client."""
BEFORE_WORK = (Gauge.BOOTSTRAP, Gauge.PREALLOC, Gauge.TRANSFER, Gauge.WAITING)
"""Queues in which a request waits before it is worked on."""


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
    span = _span_s(view, gauge) if reading is not None else None
    if span is None and not _came_since(view, gauge) and (reading is None or view.interval_s is None):
        span = view.age_s(line.at) if line else None
    return Unit(view, gauge, outstanding, progress(view, gauge), place, is_confirmed, span)


def _span_s(view: InstanceView, gauge: Gauge) -> float | None:
    """Return for how long something surely waits there: what came after the first sample has not waited since then."""
    age = view.oldest_age_s(gauge)
    if view.interval_s is None or age is not None:
        return min(view.interval_s, age) if view.interval_s is not None and age is not None else view.interval_s
    return None if _came_since(view, gauge) else view.interval_s


def _came_since(view: InstanceView, gauge: Gauge) -> bool:
    """Return whether the earlier sample shows the queue empty: no older line tells how long something waits there."""
    before = view.gauge_before(gauge)
    return before is not None and before.value <= 0


def progress(view: InstanceView, gauge: Gauge) -> bool | None:
    """Return whether requests leave this queue well."""
    if view.is_stopped:
        return False  # Whatever grew since the earlier sample grew before the stop.
    rises = [rise for counter in PROGRESS[gauge] if (rise := view.rise(counter)) is not None]
    if not rises:
        return _progress_in_log(view)
    return any(rise.value > (_polled(view, rise) if gauge in _PASSED_BY_POLLS else 0) for rise in rises)


def _polled(view: InstanceView, rise: Rise) -> float:
    """Return the most that health checks, ours and others', can have moved a counter between the samples."""
    running = view.gauge(Gauge.RUNNING)
    if not rise.counts_polls or (running is not None and running.value > 0):
        return 0.0
    return LIMITS.polls + LIMITS.polls_per_s * (view.interval_s or 0.0)


def _progress_in_log(view: InstanceView) -> bool | None:
    step = view.last_step
    age = view.age_s(step.at if step else None)
    if age is not None and age <= LIMITS.fresh_log_s:
        return True
    ends = view.age_s(view.log_ends_at)
    if not view.works or ends is None:
        return None
    if age is not None and ends > LIMITS.silence_s and age - ends < LIMITS.patience_s:
        return None  # It ends with a step: whoever took it may have cut it there.
    return False if age is None or age > LIMITS.silence_s else None


def is_busy(view: InstanceView) -> bool | None:
    """Return whether it works on something that takes long: loading, compiling, steps that advance."""
    if view.is_starting:
        return True
    if view.is_router or view.is_stopped:
        return False
    steps = view.rise(Counter.STEPS)
    if steps is not None:
        return steps.value > 0 and not _is_idle_stepping(view) and not _is_polled_only(view, steps)
    age = view.age_s(view.last_step.at if view.last_step else None)
    if age is not None:
        return age <= LIMITS.fresh_log_s
    return None


def _is_idle_stepping(view: InstanceView) -> bool:
    tokens = view.rise(Counter.DECODE_TOKENS), view.rise(Counter.PREFILL_TOKENS)
    return all(item is not None and item.value == 0 for item in tokens)


def _is_polled_only(view: InstanceView, steps: Rise) -> bool:
    """Return whether health checks explain all the steps: so few, and as few tokens."""
    tokens = [view.rise(counter) for counter in (Counter.DECODE_TOKENS, Counter.PREFILL_TOKENS)]
    known = [steps, *(rise for rise in tokens if rise is not None)]
    return len(known) > 1 and all(rise.value <= _polled(view, rise) for rise in known)


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
