"""What happened when, over all instances: starts, last work, bursts, ends; from logs, recorders and kept series."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pdctl.diagnose.bursts import aborted_rooms, burst
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.report import Change, Moment, SourceRef
from pdctl.diagnose.symptoms import BEFORE_WORK
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signal_catalogue import SERIES
from pdctl.dialects.signals import Counter, Event, Series
from pdctl.evidence.records import Place
from pdctl.evidence.traces import Mark, Trace

_MARKS = {
    Event.READY: "ready",
    Event.THREAD_DIED: "a thread died",
    Event.ENGINE_DIED: "the engine died",
    Event.FATAL_SIGNAL: "crashed",
    Event.CHILD_DIED: "a child died",
    Event.TERMINATED: "was told to stop",
    Event.WATCHDOG: "its watchdog fired",
    Event.XID: "GPU fault",
    Event.KERNEL_OOM: "killed for memory",
    Event.SESSION_FAILED: "a transfer session failed",
    Event.PEER_LOST: "lost its peer",
    Event.POOL_LEAK: "reported a leak",
    Event.DISCOVERY_REMOVED: "a worker left discovery",
}
LONGEST = 60
"""Moments of a report; `pdctl timeline` tells all."""


def timeline_of(case: Case) -> tuple[Moment, ...]:
    """Return the moments in order of time; each kind once an instance, at its first and its last time."""
    moments = [moment for view in case.views for moment in _moments(view)]
    return tuple(sorted(moments, key=lambda item: (item.at, item.instance, item.what)))


def _moments(view: InstanceView) -> Iterable[Moment]:
    if view.started_at is not None:
        yield _moment(view, view.started_at, "started", Place(f"{view.name}/process.toml"))
    for event, what in _MARKS.items():
        found = [item for item in view.all_events(event) if item.at]
        for item in found[:1] + found[1:][-1:]:
            yield from _of(view, item, f"{what}: {item.text[:80]}")
    for what, items in (
        ("aborts", aborted_rooms(view)),
        ("failures", view.events(Event.ROOM_FAILED, Event.TRANSFER_FAILED)),
    ):
        found = list(burst(items))
        if found:
            yield from _of(view, found[0], f"{len(found)} {what} within a minute")
    if view.last_step is not None and view.last_step.at is not None:
        yield _moment(view, view.last_step.at, "last step printed", view.last_step.place)
    yield from _recorded(view, view.raw.flight)
    for trace in view.raw.history:
        yield from _turn(view, trace)


def _recorded(view: InstanceView, marks: tuple[Mark, ...]) -> Iterable[Moment]:
    """Yield what the flight recorder tells; failed rooms are counted, from the first to the last."""
    failed = [mark for mark in marks if mark.kind == "room_failed"]
    for mark in marks:
        if mark.kind != "room_failed":
            yield _moment(view, mark.at, mark.text, mark.place)
    if failed:
        yield _moment(view, failed[0].at, f"first of {len(failed)} failed rooms: {failed[0].text}", failed[0].place)
    if len(failed) > 1:
        yield _moment(view, failed[-1].at, f"last of {len(failed)} failed rooms: {failed[-1].text}", failed[-1].place)


_PROGRESS = (Counter.STEPS, Counter.DECODE_TOKENS, Counter.REQUESTS_DONE, Counter.TRANSFERS_DONE)


def _turn(view: InstanceView, trace: Trace) -> Iterable[Moment]:
    """Yield when a counter that shows work grew for the last time, or a queue began to hold what it still holds."""
    row = _row_of(trace.name, view.role)
    if row is None or len(trace.points) < 2:
        return
    place, end = Place(trace.file, pointer=trace.name), trace.points[-1][0]
    if row.signal in _PROGRESS:
        grown = [at for (_, before), (at, value) in zip(trace.points, trace.points[1:], strict=False) if value > before]
        if grown and end - grown[-1] >= timedelta(seconds=LIMITS.silence_s):
            yield _moment(view, grown[-1], f"{trace.name} grew for the last time", place)
    elif row.signal in BEFORE_WORK and trace.points[-1][1] > 0:
        empty = [index for index, (_, value) in enumerate(trace.points) if value <= 0]
        if empty:
            at = trace.points[empty[-1] + 1][0]
            yield _moment(view, at, f"{trace.name} has not been empty since", place)


def _row_of(name: str, role: str) -> Series | None:
    """Return the signal of a kept series; a Prometheus may have written `_` for `:`."""
    return next(
        (row for row in SERIES if row.name.replace(":", "_") == name.replace(":", "_") and row.role in ("", role)), None
    )


def _of(view: InstanceView, item: Occurrence, what: str) -> Iterable[Moment]:
    if item.at is not None:
        yield _moment(view, item.at, what, item.place)


def _moment(view: InstanceView, at: datetime, what: str, place: Place) -> Moment:
    return Moment(
        at=at,
        instance=view.name,
        what=what,
        source=SourceRef(file=place.file, line=place.line, pointer=place.pointer),
    )


def changes_of(case: Case, since: datetime | None) -> tuple[Change, ...]:
    """Return the process starts before it began: what changed."""
    rows = [
        Change(at=view.started_at, instance=view.name, what=_start_text(view))
        for view in case.views
        if view.started_at is not None
    ]
    kept = [row for row in rows if since is None or row.at is None or row.at <= since]
    return tuple(sorted(kept, key=lambda row: (row.at is None, row.at or datetime.min), reverse=True))


def _start_text(view: InstanceView) -> str:
    restarts = f", {view.restarts()} restarts before" if view.restarts() else ""
    return f"started{f' ({view.version})' if view.version else ''}{restarts}"
