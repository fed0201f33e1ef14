"""All failpoints, and which of them are on."""

from __future__ import annotations

import logging

from engine.config import Role
from engine.failpoints import control, loop, pages, ranks, workers
from engine.failpoints.parts import Parts, Patches
from engine.observe.records import FailpointState

log = logging.getLogger(__name__)

CATALOGUE = control.POINTS + workers.POINTS + pages.POINTS + loop.POINTS + ranks.POINTS


class Failpoints:
    """The failpoints of one instance. Switched by the observer's thread."""

    def __init__(self, role: Role, parts: Parts) -> None:
        size = 1 + len(parts.others.pids)
        self._known = {point.name: point for point in CATALOGUE if role in point.roles and point.least_ranks <= size}
        self._parts = parts
        self._armed: dict[str, Patches] = {}
        log.warning("failpoints are enabled: this instance can be made to fail")

    def states(self) -> list[FailpointState]:
        """Return all, in the order of the catalogue."""
        return [
            FailpointState(
                name=name,
                fault=point.fault,
                switches_off=point.switches_off,
                on=name in self._armed,
                leaves_dead_ranks=point.leaves_dead_ranks,
            )
            for name, point in self._known.items()
        ]

    def switch(self, name: str, on: bool) -> None:
        """Switch one; an unknown name and a switch that is set already change nothing."""
        point = self._known.get(name)
        if point is None or on == (name in self._armed):
            return
        if on:
            log.warning("failpoint %s is on: %s; off with it: %s", name, point.fault, point.switches_off)
            patches = self._armed[name] = Patches()
            point.arm(self._parts, patches)
        else:
            log.warning("failpoint %s is off", name)
            self._armed.pop(name).undo()
