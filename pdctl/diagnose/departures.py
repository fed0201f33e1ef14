"""Clients that gave up a moment ago. Some leave every busy service each day: those of an hour ago explain nothing."""

from __future__ import annotations

from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def departures(view: InstanceView) -> tuple[Occurrence, ...]:
    """Return the lines of clients that left before their answer, of the last moments or of an unknown age.

    Empty where they are too few to tell anything.
    """
    lines = view.events(Event.CLIENT_GONE)
    ages = [view.age_s(item.at) for item in lines]
    recent = tuple(line for line, age in zip(lines, ages, strict=True) if age is None or age <= LIMITS.departures_s)
    return recent if len(recent) >= LIMITS.client_gone else ()
