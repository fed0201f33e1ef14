"""Numbers with their place: levels, totals and increases of one instance under canonical names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from pdctl.dialects.signal_catalogue import AGES, LOADS, SERIES
from pdctl.dialects.signals import Counter, Gauge, Series
from pdctl.evidence.model import Evidence, InstanceEvidence
from pdctl.evidence.records import Exposition, Place, Sample

_SHARES = (Gauge.KV_USAGE, Gauge.MODEL_READY)
_MEMORY = (Gauge.KV_USAGE, Gauge.KV_USED_TOKENS, Gauge.KV_TOTAL_TOKENS)
_PROGRESS = (Counter.STEPS, Counter.PREFILL_TOKENS, Counter.DECODE_TOKENS)
_TOGETHER = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of ranks that work on the same requests."""
_SNAPSHOT_AT = "loads.timestamp"
"""When the scheduler wrote the report: SGLang 0.5.13 to 0.5.18 answer with an old one in a stall."""


class Reading(msgspec.Struct, frozen=True):
    """A level or a total."""

    value: float
    place: Place
    is_batch_written: bool
    """The engine writes it on a batch only: with its counters still, it is frozen and decides nothing alone."""
    is_frozen: bool = False
    """Not written since the counters stand still: what it does not show may be there all the same."""


class Rise(msgspec.Struct, frozen=True):
    """Growth of a counter between the two samples."""

    value: float
    place: Place
    counts_polls: bool = False
    """A health check moves it too."""


SCRAPE = "metrics.txt"


class Readings:
    """The numbers of one instance, translated by the signal tables."""

    def __init__(self, raw: InstanceEvidence, evidence: Evidence) -> None:
        self.raw = raw
        self.name = raw.name
        self.role = raw.role
        self.now = evidence.captured_at
        # Where the newest scrape failed, the file is that of an earlier sample, of no known age.
        self.interval_s = None if SCRAPE in raw.capture.failed else evidence.interval_s
        self.is_router = raw.role == "router"

    def gauge(self, gauge: Gauge) -> Reading | None:
        """Return a level of metrics and load report: the larger one of a queue, of those that are not frozen."""
        written = self._level(gauge, self.raw.metrics)
        return _choice(gauge, written, self._load(gauge, self.raw.loads, "loads.json"))

    def gauge_before(self, gauge: Gauge) -> Reading | None:
        """Return the level in the earlier sample."""
        written = self._level(gauge, self.raw.metrics_prev)
        return _choice(gauge, written, self._load(gauge, self.raw.loads_prev, "loads.prev.json"))

    def _level(self, gauge: Gauge, scrape: Exposition | None) -> Reading | None:
        for row, values in self._rows(gauge, scrape):
            value = max(values) if gauge in _SHARES else sum(values)
            place = Place(scrape.file if scrape else "", pointer=row.name)
            return Reading(value, place, row.is_batch_written, row.is_batch_written and self._stands_still)
        return None

    def _load(self, gauge: Gauge, report: dict[str, float], file: str) -> Reading | None:
        for key, signal in LOADS.items():
            if signal is gauge and key in report:
                place = Place(f"{self.name}/{file}", pointer=key)
                return Reading(report[key], place, is_batch_written=False, is_frozen=self._repeats_its_report)
        return None

    @cached_property
    def _stands_still(self) -> bool:
        """Whether the counters are known and none of them grew between the samples."""
        rises = [rise.value for counter in _PROGRESS if (rise := self.rise(counter)) is not None]
        return bool(rises) and max(rises) == 0

    @property
    def _repeats_its_report(self) -> bool:
        at, before = self.raw.loads.get(_SNAPSHOT_AT), self.raw.loads_prev.get(_SNAPSHOT_AT)
        return at is not None and at == before

    def oldest_age_s(self, gauge: Gauge) -> float | None:
        """Return how long the oldest request of a queue has been where it is; None where nobody tells."""
        return next((max(values) for _, values in self._rows(gauge, self.raw.metrics, AGES)), None)

    def _rows(
        self, signal: Gauge | Counter, scrape: Exposition | None, table: tuple[Series, ...] = SERIES
    ) -> Iterable[tuple[Series, list[float]]]:
        if scrape is None:
            return
        for row in table:
            if row.signal is not signal or (row.role and row.role != self.role):
                continue
            values = _told_once(
                sample
                for sample in scrape.series.get(row.name, ())
                if all(sample.labels.get(label, "") in wanted for label, wanted in row.where.items())
            )
            if values or (row.where and row.name in scrape.series):
                yield row, values or [0.0]

    def total(self, counter: Counter) -> Reading | None:
        """Return a counter's value."""
        for row, values in self._rows(counter, self.raw.metrics):
            return Reading(
                sum(values), Place(self.raw.metrics.file if self.raw.metrics else "", pointer=row.name), False
            )
        return None

    def rise(self, counter: Counter) -> Rise | None:
        """Return by how much a counter grew between the samples; None when one is missing or the process is new."""
        for row, values in self._rows(counter, self.raw.metrics):
            before = next((old for name, old in self._rows(counter, self.raw.metrics_prev) if name == row), None)
            file = self.raw.metrics.file if self.raw.metrics else ""
            if before is None:
                # A series that a scrape of the same process did not have yet began at zero.
                if self.raw.metrics_prev is None or row.name in self.raw.metrics_prev.series:
                    continue
                before = [0.0]
            grown = sum(values) - sum(before)
            if grown >= 0:
                return Rise(grown, Place(file, pointer=row.name), row.counts_polls)
        return None


def _told_once(samples: Iterable[Sample]) -> list[float]:
    """Return one value for each part of an instance that counts for itself, such as a data-parallel replica.

    Ranks that take every step together tell of the same requests, each for itself; where a priority scheduler tells
    of each priority, the one without a name is the whole.
    """
    every = list(samples)
    whole = [sample for sample in every if sample.labels.get("priority") == ""]
    parts: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in whole or every:
        part = tuple(sorted(item for item in sample.labels.items() if item[0] not in _TOGETHER))
        parts[part] = max(sample.value, parts.get(part, sample.value))
    return list(parts.values())


def _choice(gauge: Gauge, written: Reading | None, told: Reading | None) -> Reading | None:
    """Return the reading that counts: a load report is live, a gauge that is written on a batch may be old."""
    if written is None or told is None or not written.is_batch_written:
        return written or told
    if written.is_frozen != told.is_frozen:
        return told if written.is_frozen else written
    return told if gauge in _MEMORY or told.value >= written.value else written
