"""Whom the kernel's messages mean: they are the host's, and name whatever ran or was plugged in there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.dialects.signals import Event
from pdctl.evidence.model import InstanceEvidence
from pdctl.evidence.pci import slot_of

_VICTIM = re.compile(r"(?:Killed|reaped) process (\d+)|\bpid=(\d+)|[^\s\[\]]\[(\d+)\][: ]")
"""`Killed process PID`, `pid=PID`, `NAME[PID]: segfault at`, `traps: NAME[PID] general protection fault`."""
_ENDED_BY: dict[Event, tuple[str, ...]] = {
    Event.KERNEL_OOM: ("-9", "137"),
    Event.FATAL_SIGNAL: ("-4", "-6", "-7", "-8", "-11", "132", "134", "135", "136", "139"),
}
"""What a parent says of a child that the kernel ended so."""


def is_of_host(item: Occurrence) -> bool:
    """Return whether the kernel said it, not the instance."""
    return item.place.file.rpartition("/")[2].startswith("kernel.")


def is_about(raw: InstanceEvidence, item: Occurrence, deaths: Sequence[Occurrence]) -> bool:
    """Return whether an event is about this instance: its own word, or the kernel's of a process or device of it.

    `deaths` are its own lines of children that died: one that is gone has no record; its parent says which it was,
    or that one was ended so, in the same moment.
    """
    if not is_of_host(item):
        return True
    victims = {next(filter(None, found)) for found in _VICTIM.findall(item.text)}
    if victims & ({str(process.pid) for process in raw.processes} | {end.group("pid") for end in deaths}):
        return True
    if item.event is Event.XID:
        slots = {slot_of(gpu.bus) for gpu in raw.gpus if gpu.bus}
        return slot_of(item.group("device")) in slots if slots else not victims
    if item.event in _ENDED_BY:
        codes = _ENDED_BY[item.event]
        return any(end.group("code") in codes and _is_same_moment(item, end) for end in deaths)
    return not victims


def _is_same_moment(one: Occurrence, other: Occurrence) -> bool:
    if one.at is None or other.at is None:
        return False
    return abs((one.at - other.at).total_seconds()) <= LIMITS.same_second_s
