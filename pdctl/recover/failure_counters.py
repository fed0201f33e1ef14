"""The counters that must stand still after a restart: failed transfers, rendezvous and requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pdctl.collect.credentials import api_key
from pdctl.collect.http import InstanceClient, Timeouts
from pdctl.deployment.model import Instance
from pdctl.dialects import signal_catalogue
from pdctl.dialects.signals import Counter
from pdctl.evidence.exposition import parse_exposition
from pdctl.evidence.records import Exposition

FAILURES = (Counter.TRANSFERS_FAILED, Counter.BOOTSTRAPS_FAILED, Counter.REQUESTS_FAILED, Counter.KV_EXPIRED)
_ASK = Timeouts(connect_s=2.0, read_s=3.0, total_s=4.0)

Totals = dict[Counter, float]
Failures = dict[str, Totals]
"""Instance -> counter -> total; an instance that did not answer is absent."""


def read(instances: Iterable[Instance]) -> Failures:
    """Scrape the engines, all at once; takes at most 4 s."""
    instances = tuple(instances)
    with ThreadPoolExecutor(max_workers=max(1, len(instances))) as pool:
        found = pool.map(_of, instances)
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


def _of(instance: Instance) -> Totals | None:
    url, _, path = (instance.metrics_url or f"{instance.url}/metrics").rpartition("/")
    with InstanceClient(url, key=api_key(instance.api_key_file), ca_file=instance.ca_file, timeouts=_ASK) as client:
        answer = client.get(f"/{path}")
    if not answer.ok:
        return None
    exposition, _ = parse_exposition(answer.body, instance.name)
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
