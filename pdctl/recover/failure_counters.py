"""The counters that must stand still after a restart: failed transfers, rendezvous and requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from pdctl.collect.concurrency import all_of
from pdctl.collect.fetch import Fetcher
from pdctl.collect.metrics import Sieve, metrics_place
from pdctl.deployment.model import Instance
from pdctl.dialects import signal_catalogue
from pdctl.dialects.signals import Counter
from pdctl.evidence.exposition import parse_exposition
from pdctl.evidence.records import Exposition
from pdctl.hosts.hosts import Hosts

FAILURES = (Counter.TRANSFERS_FAILED, Counter.BOOTSTRAPS_FAILED, Counter.REQUESTS_FAILED, Counter.KV_EXPIRED)
ASK_S = 4.0

Totals = dict[Counter, float]
Failures = dict[str, Totals]
"""Instance -> counter -> total; an instance that did not answer is absent."""


def read(instances: Iterable[Instance], hosts: Hosts | None = None) -> Failures:
    """Scrape the engines, all at once; takes at most 4 s."""
    instances = tuple(instances)
    found = asyncio.run(_all_of(instances, Fetcher(hosts)))
    return {instance.name: totals for instance, totals in zip(instances, found, strict=True) if totals is not None}


def risen(before: Failures, after: Failures) -> tuple[str, ...]:
    """Return one line for each counter that grew; what was not read at both times says nothing."""
    lines = []
    for name, totals in after.items():
        for counter, value in totals.items():
            grown = value - before.get(name, {}).get(counter, 0.0) if name in before else 0.0
            if grown > 0:
                lines.append(f"{name}: {counter} grew by {grown:g}")
    return tuple(lines)


async def _all_of(instances: Iterable[Instance], fetcher: Fetcher) -> list[Totals | None]:
    return await all_of(_of(instance, fetcher) for instance in instances)


async def _of(instance: Instance, fetcher: Fetcher) -> Totals | None:
    base_url, path = metrics_place(instance)
    sieve = Sieve()
    answer = await fetcher.get(instance, path, base_url=base_url, deadline_s=ASK_S, sink=sieve)
    if not answer.ok:
        return None
    exposition, _ = parse_exposition(sieve.finish(), instance.name)
    return totals_of(instance, exposition) if exposition is not None else None


def totals_of(instance: Instance, exposition: Exposition) -> Totals:
    """Return the failure counters of a scrape; of several names of one signal the first that is there."""
    totals: Totals = {}
    for series in signal_catalogue.SERIES:
        is_wanted = isinstance(series.signal, Counter) and series.signal in FAILURES and series.signal not in totals
        if not is_wanted or series.role not in ("", instance.role.value) or series.name not in exposition.series:
            continue
        samples = exposition.series[series.name]
        assert isinstance(series.signal, Counter)
        totals[series.signal] = sum(sample.value for sample in samples if _counts(sample.labels, series.where))
    return totals


def _counts(labels: Mapping[str, str], where: Mapping[str, tuple[str, ...]]) -> bool:
    return all(labels.get(key) in allowed for key, allowed in where.items() if allowed)
