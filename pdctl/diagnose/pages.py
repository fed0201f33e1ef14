"""KV pages by owner, as our own engine counts them in every scrape (engine/kvcache/pages.py). Pure functions of views.

An owner outlives its requests by moments only: a fence drops the peer's agent after 1 s and ends the instance after
10 s, everything else gives its pages back with its room. So pages that stay are a fault, however few they are.
"""

from __future__ import annotations

import msgspec

from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.loop_progress import stands_in_a_step_s
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import PAGES, QUEUE_AGE, QUEUE_LENGTH
from pdctl.dialects.signals import Counter, Gauge
from pdctl.evidence.records import Exposition, Place

_OF_REQUESTS = ("running", "held_for_peer", "reading")
"""Owners that hold pages for a live request only; `cached` and `pinned` outlive them by design."""


class Held(msgspec.Struct, frozen=True):
    """Pages that an owner kept over both samples."""

    owner: str
    pages: float
    place: Place


def pages_of(scrape: Exposition | None) -> dict[str, float]:
    """Return owner -> pages; empty for an engine that does not tell."""
    rows = scrape.series.get(PAGES, ()) if scrape else ()
    return {sample.labels.get("owner", ""): sample.value for sample in rows}


def ownerless(view: InstanceView) -> Held | None:
    """Return pages that stay with an owner for requests while there is none in either sample.

    None while a step is under way: it may still write to the pages of who has ended, and they are freed after it.
    """
    is_long = view.interval_s is not None and view.interval_s >= LIMITS.ownerless_s
    if not is_long or stands_in_a_step_s(view) is not None:
        return None
    if _requests(view.raw.metrics) != 0 or _requests(view.raw.metrics_prev) != 0:
        return None
    return next((held for owner in _OF_REQUESTS if (held := _stays(view, owner)) is not None), None)


def _requests(scrape: Exposition | None) -> float | None:
    """Return the requests in all phases together; None for an engine that does not tell."""
    rows = scrape.series.get(QUEUE_LENGTH, ()) if scrape else ()
    return sum(sample.value for sample in rows) if rows else None


def unfenced(view: InstanceView) -> Held | None:
    """Return pages that wait for the end of an aborted READ past every bound, while no transfer lands."""
    landed = view.rise(Counter.TRANSFERS_DONE)
    is_long = view.interval_s is not None and view.interval_s >= LIMITS.patience_s
    if not is_long or landed is None or landed.value > 0:
        return None
    return _stays(view, "fencing")


def _stays(view: InstanceView, owner: str) -> Held | None:
    now, before = pages_of(view.raw.metrics).get(owner, 0.0), pages_of(view.raw.metrics_prev).get(owner, 0.0)
    if min(now, before) <= 0:
        return None
    return Held(owner, min(now, before), Place(f"{view.name}/metrics.txt", pointer=f"{PAGES} {owner}"))


def waiting_for_free_pages(view: InstanceView) -> tuple[float, float, float] | None:
    """Return (seconds the oldest waits for pages, pages free, pages in all) where nobody else will free any."""
    pages = pages_of(view.raw.metrics)
    rows = view.raw.metrics.series.get(QUEUE_AGE, ()) if view.raw.metrics else ()
    age = next((sample.value for sample in rows if sample.labels.get("queue") == "pages"), None)
    total, free = pages.get("total", 0.0), pages.get("free", 0.0) + pages.get("cached", 0.0)
    running = view.gauge(Gauge.RUNNING)
    if age is None or age < LIMITS.patience_s or total <= 0 or running is None or running.value > 0:
        return None
    is_free = free / total > 1 - LIMITS.kv_low and pages.get("reading", 0.0) == 0
    return (age, free, total) if is_free else None
