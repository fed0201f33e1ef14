"""Questions that several causes ask."""

from __future__ import annotations

from collections import Counter as Tally
from datetime import datetime, timedelta

from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.ranks import Stand, stand_of
from pdctl.diagnose.symptoms import Symptom, progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge
from pdctl.evidence.records import ProcessStack


def logged(view: InstanceView, *events: Event, what: str) -> Answer:
    """Ask whether the running incarnation printed such lines. Absence counts only with the whole log at hand."""
    found = view.events(*events)
    if found:
        last = found[-1]
        return yes(
            f"{view.name}: {what} ({len(found)}x, last: {last.text[:110]})", Kind.LOG, last.place, len(found)
        )
    if not view.has_log or view.raw.log_truncated:
        return unknown(f"no complete log of {view.name}")
    return no(f"{view.name}: no line of {what}", Kind.LOG, value=0)


def alive(case: Case, view: InstanceView) -> Answer:
    """Ask whether the instance is there."""
    if view.is_alive is None:
        return unknown(f"nothing tells whether {view.name} lives")
    kind = Kind.HTTP if view.raw.gets else Kind.PROCESS
    if view.is_alive:
        return yes(f"{view.name} is there", kind)
    return no(f"{view.name} is gone", kind)


def peers_alive(case: Case, view: InstanceView) -> Answer:
    """Ask whether every peer is there and runs."""
    peers = case.peers(view)
    gone = [
        peer for peer in peers if peer.is_alive is False or any(item.state == "T" for item in peer.processes)
    ]
    if gone:
        return no(f"{gone[0].name} is gone or stopped", Kind.PROCESS)
    if all(peer.is_alive for peer in peers):
        return yes(f"{view.name} and its peers are there", Kind.PROCESS)
    return unknown("nothing tells whether every peer lives")


def stalled(case: Case, view: InstanceView, *gauges: Gauge) -> Answer:
    """Ask whether one of these queues holds work that does not move."""
    for gauge in gauges:
        unit = case.unit(view, gauge)
        observed = next(
            (
                item
                for item in case.symptoms
                if item.instance == view.name
                and item.unit == gauge.value
                and item.symptom in (Symptom.STALLED, Symptom.SUSPECTED)
            ),
            None,
        )
        if unit is not None and observed is not None:
            return yes(observed.text, _kind_of(unit.place.file), unit.place, unit.outstanding, "requests")
    known = [view.gauge(gauge) for gauge in gauges]
    if any(known) and view.interval_s:
        return no(
            f"{view.name}: nothing stands still in {', '.join(gauge.value for gauge in gauges)}", Kind.METRICS
        )
    return unknown(f"no two samples of the queues of {view.name}")


def _kind_of(file: str) -> Kind:
    return Kind.LOG if "/log" in file else Kind.METRICS


def grew(view: InstanceView, counter: Counter, what: str) -> Answer:
    """Ask whether a counter grew between the samples."""
    rise = view.rise(counter)
    if rise is None:
        return unknown(f"no two samples of {counter.value} of {view.name}")
    if rise.value > 0:
        return yes(f"{view.name}: {what} +{rise.value:g}", Kind.METRICS, rise.place, rise.value)
    return no(f"{view.name}: {what} did not grow", Kind.METRICS, rise.place, 0)


def moves(case: Case, view: InstanceView, gauge: Gauge) -> Answer:
    """Ask whether requests leave a queue well."""
    answer = progress(view, gauge)
    if answer is None:
        return unknown(f"nothing tells whether {gauge.value} of {view.name} moves")
    kind = Kind.METRICS if view.interval_s and view.raw.metrics else Kind.LOG
    return (yes if answer else no)(
        f"{view.name}: {gauge.value} {'moves' if answer else 'stands still'}", kind
    )


# Time


def burst(items: tuple[Occurrence, ...], least: int = LIMITS.burst_events) -> tuple[Occurrence, ...]:
    """Return the events of the densest minute when they are enough to be a burst."""
    timed = [item for item in items if item.at is not None]
    best: tuple[Occurrence, ...] = ()
    start = 0
    window = timedelta(seconds=LIMITS.burst_s)
    for end, item in enumerate(timed):
        while _at(item) - _at(timed[start]) > window:
            start += 1
        if end - start + 1 > len(best):
            best = tuple(timed[start : end + 1])
    return best if len(best) >= least else ()


def _at(item: Occurrence) -> datetime:
    assert item.at is not None
    return item.at


def aborted_rooms(view: InstanceView) -> tuple[Occurrence, ...]:
    """Return rooms that an abort ended, and clients that left."""
    rooms = tuple(item for item in view.events(Event.ROOM_FAILED) if "bort" in item.group("reason"))
    return rooms or view.events(Event.CLIENT_GONE)


def abort_burst(case: Case, view: InstanceView) -> Answer:
    """Ask whether a burst of aborts came shortly before work stopped, on this side or the other."""
    sides = (view, *case.peers(view))
    for side in sides:
        found = burst(aborted_rooms(side))
        if not found:
            continue
        last_step = max(
            (item.at for one in sides for item in one.works if item.is_step and item.at), default=None
        )
        first = found[0].at
        if last_step and first and last_step - first > timedelta(seconds=LIMITS.onset_s):
            continue
        return yes(
            f"{side.name}: {len(found)} rooms aborted within a minute, then work stopped",
            Kind.LOG,
            found[0].place,
            len(found),
        )
    if any(side.has_log for side in sides):
        return no("no burst of aborts in the logs", Kind.LOG)
    return unknown("no log tells of aborts")


def many_aborts(case: Case, view: InstanceView) -> Answer:
    """Ask whether clients aborted requests at all."""
    total = view.total(Counter.ABORTS)
    events = aborted_rooms(view)
    if total is not None and total.value > 0:
        return yes(f"{view.name}: {total.value:g} requests aborted", Kind.METRICS, total.place, total.value)
    if events:
        return yes(f"{view.name}: {len(events)} aborts in its log", Kind.LOG, events[0].place, len(events))
    return (
        unknown("nothing tells of aborts")
        if total is None
        else no("no request was aborted", Kind.METRICS, total.place, 0)
    )


def lived_s(view: InstanceView) -> tuple[float | None, bool]:
    """Return how long an incarnation lived, and whether that is exact (else it is a lower bound from its log)."""
    age = view.age_of_process_s
    if age is not None:
        return age, True
    return view.age_s(view.log_begins_at), False


def age_skew(case: Case, view: InstanceView) -> Answer:
    """Ask whether one side of a pair was restarted long after the other began."""
    own, is_own_exact = lived_s(view)
    answers: list[Answer] = []
    for peer in case.peers(view):
        other, is_other_exact = lived_s(peer)
        if own is None or other is None:
            continue
        young, old = sorted(
            ((own, is_own_exact, view), (other, is_other_exact, peer)), key=lambda item: item[0]
        )
        is_skewed = old[0] >= LIMITS.age_ratio * young[0] and old[0] - young[0] >= LIMITS.age_floor_s
        text = f"{young[2].name} lives {young[0] / 3600:.1f} h, {old[2].name} {old[0] / 3600:.1f} h"
        if is_skewed and young[1]:
            return yes(
                f"one side was restarted alone: {text}", Kind.PROCESS, value=old[0] - young[0], unit="s"
            )
        if is_own_exact and is_other_exact:
            answers.append(
                no(f"both sides are of one age: {text}", Kind.PROCESS, value=old[0] - young[0], unit="s")
            )
    return answers[0] if answers else unknown("the ages of the two sides are not known")


def quantised(items: tuple[Occurrence, ...]) -> tuple[float, int] | None:
    """Return the one duration after which several rooms ended, and how many did."""
    found: Tally[int] = Tally()
    for item in items:
        seconds = _seconds(item)
        if seconds is not None:
            found[round(seconds / LIMITS.quantum_tolerance_s)] += 1
    if not found:
        return None
    bucket, _ = found.most_common(1)[0]
    near = sum(found[bucket + shift] for shift in (-1, 0, 1))
    if near < LIMITS.quantum_events or near < sum(found.values()) / 2:
        return None
    return bucket * LIMITS.quantum_tolerance_s, near


def _seconds(item: Occurrence) -> float | None:
    text = item.group("reason") or item.text
    marker = "timed out after "
    if item.group("ms"):
        return float(item.group("ms")) / 1000
    if item.group("seconds"):
        return float(item.group("seconds"))
    if marker not in text:
        return None
    number = text.partition(marker)[2].partition("s")[0].strip()
    try:
        return float(number)
    except ValueError:
        return None


def room_failures(view: InstanceView, *words: str) -> tuple[Occurrence, ...]:
    """Return failed rooms whose reason has one of the words (all without words)."""
    return tuple(
        item
        for item in view.events(Event.ROOM_FAILED)
        if not words or any(word in item.group("reason") for word in words)
    )


# GPU


def gpus_do_not_spin(case: Case, view: InstanceView) -> Answer:
    """Ask that no GPU of a pair is busy without a step: while requests wait for a transfer, GPUs have nothing to do."""
    for side in (view, *case.peers(view)):
        loads = [gpu.util_percent for gpu in side.raw.gpus if gpu.util_percent is not None]
        steps = side.rise(Counter.STEPS)
        is_still = steps is not None and steps.value == 0
        if loads and min(loads) >= LIMITS.gpu_spin_percent and is_still:
            return unknown(f"GPUs of {side.name} spin at {min(loads):.0f} % without a step")
    return yes("no GPU is known to spin without a step", Kind.GPU)


# Stacks


def stands(view: InstanceView) -> tuple[Stand | None, Stand | None]:
    """Return how the ranks stand in the dump and in the earlier one."""
    return stand_of(view.raw.stacks), stand_of(view.raw.stacks_prev)


def silent_s(view: InstanceView) -> float | None:
    """Return for how long it printed no step, though it had before."""
    return view.age_s(view.last_step.at if view.last_step else None)


def is_standing_still(case: Case, view: InstanceView) -> bool:
    """Return whether anything but the stacks shows that it stopped: then one dump is enough."""
    if case.symptom_of(view, Symptom.STALLED, Symptom.SUSPECTED) or view.events(Event.WATCHDOG):
        return True
    silence = silent_s(view)
    if silence is not None and silence >= LIMITS.silence_s:
        return True
    if view.health is not None and view.health != 200:
        return True
    return any(probe.timed_out for probe in case.probes)


def full_dumps(stacks: tuple[ProcessStack, ...]) -> tuple[ProcessStack, ...]:
    """Return the processes whose dump shows more than the main thread: only there absence tells something."""
    return tuple(process for process in stacks if len(process.threads) >= 3)


def threads_running(process: ProcessStack, *functions: str) -> int:
    """Return how many threads of a process run one of the functions (by frame, or by name where frames lack it)."""
    return sum(
        1
        for thread in process.threads
        if thread.has(*functions) or any(f"({function})" in thread.name for function in functions)
    )


# Source


def fix_marker(view: InstanceView, marker: str) -> bool | None:
    """Return whether the running code has a fix; None when nobody looked."""
    return view.raw.source.fixes.get(marker) if view.raw.source else None


def has_flag(view: InstanceView, flag: str) -> bool | None:
    """Return whether a flag was given; None when the flags are not known."""
    if view.raw.source is None or not view.raw.source.flags:
        return None
    return view.raw.source.flag(flag) is not None


def kv_usage(view: InstanceView) -> tuple[float, Kind] | None:
    """Return the used share of KV memory."""
    reading = view.gauge(Gauge.KV_USAGE)
    if reading is not None:
        return reading.value, Kind.METRICS
    work = next((item for item in reversed(view.works) if Gauge.KV_USAGE in item.levels), None)
    return (work.levels[Gauge.KV_USAGE], Kind.LOG) if work else None


def level(view: InstanceView, gauge: Gauge) -> float | None:
    """Return a level from the metrics, else from the last line of the log."""
    reading = view.gauge(gauge)
    if reading is not None:
        return reading.value
    return view.last_work.levels.get(gauge) if view.last_work else None
