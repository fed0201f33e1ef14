"""Symptoms that no single gauge shows: floors, leaks, orphans, bypassed prefill. Pure functions of views."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pdctl.diagnose.events import Work
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.reading import Reading
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge


def recent(works: Sequence[Work], minutes: float) -> list[Work]:
    """Return the work lines of the last minutes of the log."""
    timed = [work for work in works if work.at is not None]
    if not timed or timed[-1].at is None:
        return []
    start = timed[-1].at - timedelta(minutes=minutes)
    return [work for work in timed if work.at is not None and work.at >= start]


def queue_floor(view: InstanceView, gauge: Gauge) -> tuple[float, float] | None:
    """Return (floor, minutes) of a queue that held the same entries all the time while others passed.

    One rank's lines only: ranks print their own queues.
    """
    rank = view.works[-1].rank if view.works else ""
    lines = [work for work in view.works if work.rank == rank and gauge in work.levels]
    tail = recent(lines, 60)
    while tail and tail[-1].levels[gauge] < LIMITS.floor_count:
        return None
    start = len(tail)
    last = tail[-1].levels[gauge] if tail else 0.0
    while start > 0 and tail[start - 1].levels[gauge] >= LIMITS.floor_share * last:
        start -= 1
    held = tail[start:]
    if len(held) < 3 or held[0].at is None or held[-1].at is None:
        return None
    minutes = (held[-1].at - held[0].at).total_seconds() / 60
    floor = min(work.levels[gauge] for work in held)
    spread = max(work.levels[gauge] for work in held) - floor
    # Entries that come and go make the level wander; entries that stay make it a floor.
    if minutes < LIMITS.floor_minutes or spread > max(2.0, 0.15 * floor):
        return None
    return floor, minutes


def level_in_metrics(view: InstanceView) -> float | None:
    """Return the length of a transfer queue that two samples show unmoved on a decode with room and little to do."""
    now, before = view.gauge(Gauge.TRANSFER), view.gauge_before(Gauge.TRANSFER)
    running, usage = view.gauge(Gauge.RUNNING), view.gauge(Gauge.KV_USAGE)
    if now is None or before is None or running is None or usage is None:
        return None
    is_level = min(now.value, before.value) >= LIMITS.floor_count and abs(now.value - before.value) <= 0.15 * now.value
    return now.value if is_level and running.value < now.value / 2 and usage.value < LIMITS.kv_full else None


def is_idle(view: InstanceView) -> bool | None:
    """Return whether every queue of an instance is empty; None when nothing tells."""
    levels = [reading.value for gauge in _HELD if (reading := view.gauge(gauge)) is not None]
    return all(value == 0 for value in levels) if levels else None


_HELD = (
    Gauge.RUNNING, Gauge.WAITING, Gauge.BOOTSTRAP, Gauge.INFLIGHT, Gauge.PREALLOC, Gauge.TRANSFER, Gauge.HTTP_ACTIVE,
)  # fmt: skip


def idle_tokens(view: InstanceView) -> Reading | None:
    """Return the KV tokens in use on an instance without requests, when they are too many for one to be ending."""
    if is_idle(view) is not True:
        return None
    used = view.gauge(Gauge.KV_USED_TOKENS)
    before = view.gauge_before(Gauge.KV_USED_TOKENS)
    if used is None or used.value < LIMITS.idle_kv_tokens:
        return None
    return used if before is None or before.value >= LIMITS.idle_kv_tokens else None


def usage_climbs(view: InstanceView) -> tuple[float, float, float, float] | None:
    """Return (usage then, usage now, running then, running now) when KV use grew while fewer requests ran."""
    if view.role == "prefill":
        return None
    lines = [work for work in view.works if Gauge.KV_USAGE in work.levels and Gauge.RUNNING in work.levels]
    if len(lines) < 8:
        return None
    quarter = max(2, len(lines) // 4)
    usage_then, usage_now = _mean(lines[:quarter], Gauge.KV_USAGE), _mean(lines[-quarter:], Gauge.KV_USAGE)
    running_then, running_now = _mean(lines[:quarter], Gauge.RUNNING), _mean(lines[-quarter:], Gauge.RUNNING)
    is_leak = (
        running_then >= 4
        and usage_now >= usage_then + 0.2
        and running_now <= 0.5 * running_then
        and usage_now >= LIMITS.kv_low
    )
    return (usage_then, usage_now, running_then, running_now) if is_leak else None


def _mean(works: list[Work], gauge: Gauge) -> float:
    return sum(work.levels[gauge] for work in works) / len(works)


def host_memory(view: InstanceView) -> tuple[float, float] | None:
    """Return (MB, ratio to the smallest rank around) of an idle instance's fattest rank, when it is too much."""
    ranks = [item.rss_mb for item in view.processes if item.rss_mb and "scheduler" in item.label.lower() + item.name]
    if not ranks or is_idle(view) is not True:
        return None
    others = [item.rss_mb for item in view.processes if item.rss_mb and item.rss_mb not in ranks]
    worst, reference = max(ranks), max(min([*others, 20_000.0]), 8_000.0)
    if worst < LIMITS.host_memory_floor_mb or worst < LIMITS.host_memory_ratio * reference:
        return None
    return worst, worst / reference


def in_flight_on(views: Sequence[InstanceView]) -> float | None:
    """Return the requests that workers hold; None when one of them tells nothing."""
    total = 0.0
    for view in views:
        levels = [reading.value for gauge in _HELD if (reading := view.gauge(gauge)) is not None]
        has_counts = view.raw.metrics is not None
        if not levels and not has_counts:
            return None
        total += max(levels, default=0.0)
    return total


def bypassed(view: InstanceView) -> tuple[float, float] | None:
    """Return (tokens asked of the other side's cache, hits) when decode asks and never gets any."""
    queries, hits = view.rise(Counter.EXTERNAL_QUERIES), view.rise(Counter.EXTERNAL_HITS)
    if queries is None or hits is None:
        total_queries, total_hits = view.total(Counter.EXTERNAL_QUERIES), view.total(Counter.EXTERNAL_HITS)
        if view.interval_s or total_queries is None or total_hits is None:
            return None
        asked, got = total_queries.value, total_hits.value
    else:
        asked, got = queries.value, hits.value
    return (asked, got) if asked >= LIMITS.bypass_queries and got == 0 else None


def prefill_unused(prefills: Sequence[InstanceView], decodes: Sequence[InstanceView]) -> float | None:
    """Return the requests decode finished between the samples while every prefill, alive, was asked for none."""
    done = [rise.value for view in decodes if (rise := view.rise(Counter.REQUESTS_DONE)) is not None]
    asked = [view.rise(Counter.REQUESTS_DONE) for view in prefills]
    if (
        not prefills
        or not done
        or any(rise is None for rise in asked)
        or any(view.is_alive is False for view in prefills)
    ):
        return None
    is_unused = all(rise is not None and rise.value == 0 for rise in asked) and not any(
        is_idle(view) is False for view in prefills
    )
    return sum(done) if is_unused and sum(done) >= LIMITS.bypass_requests else None


def pool_leaks(view: InstanceView) -> int:
    """Return how often the engine itself reported missing pages."""
    return len(view.events(Event.POOL_LEAK))
