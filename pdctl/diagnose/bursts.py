"""Bursts, ages and durations: when things happened, not what they were."""

from __future__ import annotations

from collections import Counter as Tally
from datetime import datetime, timedelta

from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import Occurrence, number_of
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event


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
        last_step = max((item.at for one in sides for item in one.works if item.is_step and item.at), default=None)
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
        young, old = sorted(((own, is_own_exact, view), (other, is_other_exact, peer)), key=lambda item: item[0])
        is_skewed = old[0] >= LIMITS.age_ratio * young[0] and old[0] - young[0] >= LIMITS.age_floor_s
        text = f"{young[2].name} lives {young[0] / 3600:.1f} h, {old[2].name} {old[0] / 3600:.1f} h"
        if is_skewed and young[1]:
            return yes(f"one side was restarted alone: {text}", Kind.PROCESS, value=old[0] - young[0], unit="s")
        if is_own_exact and is_other_exact:
            answers.append(no(f"both sides are of one age: {text}", Kind.PROCESS, value=old[0] - young[0], unit="s"))
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
        milliseconds = number_of(item.group("ms"))
        return None if milliseconds is None else milliseconds / 1000
    if item.group("seconds"):
        return number_of(item.group("seconds"))
    return number_of(text.partition(marker)[2].partition("s")[0]) if marker in text else None


def room_failures(view: InstanceView, *words: str) -> tuple[Occurrence, ...]:
    """Return failed rooms whose reason has one of the words (all without words)."""
    return tuple(
        item
        for item in view.events(Event.ROOM_FAILED)
        if not words or any(word in item.group("reason") for word in words)
    )
