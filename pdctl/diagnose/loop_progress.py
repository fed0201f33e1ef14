"""Whether the scheduler loop of our own engine moves: it says when it last did (engine/observe/metrics.py)."""

from __future__ import annotations

from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import LAST_PROGRESS
from pdctl.evidence.records import Exposition, Place


def stands_in_a_step_s(view: InstanceView) -> float | None:
    """Return the seconds between the samples where the loop has not moved in them, idle or not; else None.

    Also None for an engine that does not tell. Clocks of two hosts are never compared.
    """
    now, before = _moved_at(view.raw.metrics), _moved_at(view.raw.metrics_prev)
    if now is None or before is None or now - before >= LIMITS.loop_turn_s:
        return None
    return view.interval_s


def place_of(view: InstanceView) -> Place:
    """Return where it was read."""
    return Place(f"{view.name}/metrics.txt", pointer=LAST_PROGRESS)


def _moved_at(scrape: Exposition | None) -> float | None:
    rows = scrape.series.get(LAST_PROGRESS, ()) if scrape else ()
    return next((sample.value for sample in rows), None)
