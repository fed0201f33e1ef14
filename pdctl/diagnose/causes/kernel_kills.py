"""Whom the kernel killed for want of memory: its messages are the host's, and name whatever was killed there."""

from __future__ import annotations

import re

from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Process

_VICTIM = re.compile(r"Killed process (\d+)")
_KILLED = ("-9", "137")


def kernel_kills(view: InstanceView) -> tuple[Occurrence, ...]:
    """Return the kills that hit this instance, by its own log or manager, or by a process that it lost."""
    return tuple(item for item in view.end_events(Event.KERNEL_OOM) if has_been_hit(view, item))


def has_been_hit(view: InstanceView, item: Occurrence) -> bool:
    """Return whether an event is about this instance; what is no kill for memory always is."""
    return item.event is not Event.KERNEL_OOM or not _is_of_host(item) or _has_hit(view, item)


def is_new_since(view: InstanceView, process: Process) -> bool:
    """Return whether the kernel killed somebody just before this process was started in place of another."""
    kills = [item for item in view.end_events(Event.KERNEL_OOM) if item.at is not None]
    began = process.started_at
    return began is not None and any(
        0 <= (began - item.at).total_seconds() <= LIMITS.burst_s for item in kills if item.at is not None
    )


def _is_of_host(item: Occurrence) -> bool:
    return item.place.file.endswith("/kernel.txt")


def _has_hit(view: InstanceView, item: Occurrence) -> bool:
    victim = _VICTIM.search(item.text)
    ends = view.end_events(Event.CHILD_DIED)
    # A child that is gone has no record; its parent says which it was, or that one was killed, in the same moment.
    known = {str(process.pid) for process in view.raw.processes} | {end.group("pid") for end in ends}
    if victim is not None and victim[1] in known:
        return True
    return any(end.group("code") in _KILLED and _is_same_moment(item, end) for end in ends)


def _is_same_moment(one: Occurrence, other: Occurrence) -> bool:
    if one.at is None or other.at is None:
        return False
    return abs((one.at - other.at).total_seconds()) <= LIMITS.same_second_s
