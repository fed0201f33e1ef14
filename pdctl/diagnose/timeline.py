"""What happened when, over all instances: starts, last work, bursts, ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pdctl.diagnose.bursts import aborted_rooms, burst
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.report import Change, Moment, SourceRef
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place

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
_LONGEST = 60


def timeline_of(case: Case) -> tuple[Moment, ...]:
    """Return the moments in order of time; each kind once an instance, at its first and its last time."""
    moments = [moment for view in case.views for moment in _moments(view)]
    return tuple(sorted(moments, key=lambda item: (item.at, item.instance, item.what))[-_LONGEST:])


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
