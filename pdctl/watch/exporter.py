"""The newest sight as Prometheus metrics; computed at scrape time, so a watcher that hangs shows by its age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pdctl.diagnose.verdict import Verdict
from pdctl.watch.canary import OUTCOMES, Canary
from pdctl.watch.sight import CanarySight, InstanceSight, Sight

PREFIX = "pdctl_watch_"

_INSTANCE: tuple[tuple[str, str, Callable[[InstanceSight], float | None]], ...] = (
    ("instance_well", "1 while an instance answers and says that it is well.", lambda one: float(one.state == "ok")),
    ("running", "Requests that run there.", lambda one: one.running),
    ("waiting", "Requests that wait there, for anything.", lambda one: one.waiting),
    ("oldest_seconds", "Age of the oldest request in any queue.", lambda one: one.oldest_s),
    ("requests_per_second", "Requests that end well.", lambda one: one.requests_s),
    ("tokens_per_second", "Tokens computed.", lambda one: one.tokens_s),
    ("kv_megabytes_per_second", "KV sent or read, 10^6 bytes.", lambda one: one.kv_mb_s),
    ("recent_failures", "Failures within the window of the last judgement.", lambda one: one.failed),
)
"""Metric, help, and where it stands; what is unknown is left out, never 0."""

_CANARY: tuple[tuple[str, str, Callable[[CanarySight], float | None]], ...] = (
    (
        "canary_passed",
        "1 where the last canary proved the way, 0 where it failed; none where it was answered and proved nothing.",
        lambda one: None if one.passed is None else float(one.passed),
    ),
    ("canary_seconds", "Duration of the last canary.", lambda one: one.took_ms / 1000),
    ("canary_timestamp_seconds", "Unix time at which the last canary was sent.", lambda one: one.at),
)


class Exporter(Collector):
    """Holds the newest sight."""

    def __init__(self, deployment: str, canary: Canary | None) -> None:
        self._deployment = deployment
        self._canary = canary
        self._sight: Sight | None = None
        self._judgements: Counter[str] = Counter()

    def show(self, sight: Sight) -> None:
        """Take the newest sight."""
        self._judgements[sight.verdict] += 1
        self._sight = sight

    def collect(self) -> Iterator[Metric]:
        """Yield every family; before the first look there are only the counters."""
        yield self._counts("judgements", "Judgements by verdict.", "verdict", tuple(Verdict), self._judgements)
        if self._canary is not None:
            yield self._counts("canaries", "Canary requests by outcome.", "outcome", OUTCOMES, self._canary.outcomes)
        if self._sight is not None:
            yield from self._whole(self._sight)
            yield from self._instances(self._sight)
            yield from self._canaries(self._sight)

    def _whole(self, sight: Sight) -> Iterator[Metric]:
        at = sight.at.timestamp() if sight.at else 0.0
        yield self._gauge("last_judgement_timestamp_seconds", "Unix time of the last sample.", (), [((), at)])
        yield self._gauge("look_seconds", "Duration of the last look.", (), [((), sight.took_s)])
        verdicts = [((word.value,), float(word == sight.confirmed)) for word in Verdict]
        yield self._gauge("verdict", "1 for what two consecutive judgements agreed on.", ("verdict",), verdicts)
        causes = [((item.code, item.label, item.level, item.instance), 1.0) for item in sight.causes]
        names = ("code", "label", "level", "instance")
        yield self._gauge("cause", "1 for each cause that stands at the last judgement.", names, dict(causes).items())

    def _instances(self, sight: Sight) -> Iterator[Metric]:
        for name, text, value_of in _INSTANCE:
            rows = [((one.name, one.role), value) for one in sight.instances if (value := value_of(one)) is not None]
            yield self._gauge(name, text, ("instance", "role"), rows)

    def _canaries(self, sight: Sight) -> Iterator[Metric]:
        for name, text, value_of in _CANARY:
            rows = [((one.via,), value) for one in sight.canaries if (value := value_of(one)) is not None]
            yield self._gauge(name, text, ("via",), rows)

    def _gauge(
        self, name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float]]
    ) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, text, labels=("deployment", *labels))
        for values, value in rows:
            family.add_metric((self._deployment, *values), value)
        return family

    def _counts(self, name: str, text: str, label: str, words: Iterable[str], counted: Counter[str]) -> Metric:
        family = CounterMetricFamily(PREFIX + name, text, labels=("deployment", label))
        for word in words:
            family.add_metric((self._deployment, word), counted[word])
        return family
