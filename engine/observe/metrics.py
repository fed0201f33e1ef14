"""The metric catalogue: every name this engine exposes, with type, help and labels. Names are never reused.

Scheduler and transfer report `Sample`s computed from live state at each scrape; the API process turns them into the
Prometheus text format, where every name has the prefix, and a counter's ends in `_total`; producers may leave both
out. A sample whose name is not here is exposed as untyped rather than lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from prometheus_client import Metric
from prometheus_client.registry import Collector

from engine.observe.records import Sample

PREFIX = "pdengine_"


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric family. A counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> MetricInfo:
    return MetricInfo(PREFIX + name, "gauge", text, labels)


def _counter(name: str, text: str, *labels: str) -> MetricInfo:
    return MetricInfo(PREFIX + name, "counter", text, labels)


SCHEDULER = (
    _gauge("info", "Always 1; what this instance is.", "instance", "incarnation", "role"),
    _gauge("start_time_seconds", "Unix time at which the scheduler began to serve."),
    _gauge("pages", "KV pages by owner; those of `total` are the sum of all others, or there is a leak.", "owner"),
    _gauge("queue_length", "Requests in each queue.", "queue"),
    _gauge("queue_oldest_age_seconds", "Age of the oldest request in each queue; 0 when empty.", "queue"),
    _gauge("thread_alive", "1 while a supervised thread runs.", "thread"),
    _counter("thread_restarts_total", "Crashes of a supervised thread, each answered by a restart.", "thread"),
    _gauge("last_progress_timestamp_seconds", "Unix time at which the scheduler loop last moved."),
    _counter("steps_total", "Forward steps."),
    _counter("step_seconds_total", "Time spent in forward steps."),
    _gauge("longest_step_seconds", "Longest forward step so far."),
    _counter(
        "prompt_tokens_total",
        "Tokens of prompt chunks computed here; on decode also the prompts that landed, cached tokens included.",
    ),
    _counter(
        "generated_tokens_total",
        "Output tokens handed to the API process; on decode also the first, which its prefill sampled.",
    ),
    _counter(
        "prefix_cache_asked_tokens_total", "Tokens of entering sequences that were looked up in the prefix cache."
    ),
    _counter("prefix_cache_hit_tokens_total", "Of these, tokens that were there: neither computed nor read again."),
    _counter("prefix_cache_evicted_pages_total", "Pages that the prefix cache gave up for others."),
    _counter("retractions_total", "Sequences that gave their pages back and began again."),
    _counter("prompts_rechecked_total", "Requests whose prompt pages a rank summed again at their end.", "rank"),
    _counter("prompts_changed_total", "Those whose prompt pages had changed: a bug, always.", "rank"),
    _counter("requests_total", "Sequences that ended, by how: a finish reason or the code of a failure.", "result"),
)

TRANSFER = (
    _gauge("rooms", "Live rooms by state.", "state"),
    _counter("transfers_total", "Rooms that ended, by result and peer.", "result", "peer"),
    _counter(
        "transfer_bytes_total",
        "KV bytes of rooms that landed: READ (decode), or offered for reading (prefill).",
        "peer",
    ),
    _counter(
        "transfer_seconds_total",
        "Time from post to DONE, summed over the READs of rooms that landed, of their slowest lane.",
        "peer",
    ),
    _counter("transfer_fences_total", "Ended rooms whose pages had to be fenced."),
    _counter(
        "transfer_agents_dropped_total",
        "NIXL agents dropped by decode, to fence pages or with the link that they were for.",
    ),
    _counter("transfer_source_restarts_total", "Deaths of prefill's data-plane process, each answered by a new one."),
    _gauge("transfer_peers", "Peers whose control channel is up."),
    _counter("control_frames_total", "Control frames by kind and direction.", "kind", "direction"),
    _counter("control_bad_frames_total", "Control frames that were dropped because they made no sense."),
    _counter("control_strangers_total", "Prefill: connections that were refused for their control key."),
    _counter("control_nacks_total", "Control frames answered by NACK, by reason.", "reason"),
)

API = (
    _counter("http_requests_total", "HTTP requests answered.", "path", "status"),
    _gauge("http_in_flight", "HTTP requests being answered."),
    _gauge("http_generations", "Generating requests in flight.", "stream"),
    _counter("http_clients_left_total", "Generating requests whose client closed the connection early."),
    _gauge("sequences_in_flight", "Sequences handed to the scheduler whose end has not come."),
    _gauge(
        "scheduler_observed",
        "1 when the scheduler answered this scrape; 0 leaves out all it would have said.",
    ),
    _gauge("api_start_time_seconds", "Unix time at which the API process started."),
)

CATALOGUE = {info.name: info for info in (*SCHEDULER, *TRANSFER, *API)}


class SampleCollector(Collector):
    """Turns samples into metric families for `prometheus_client.generate_latest`."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """Yield one family a name, in the order of first appearance."""
        families: dict[str, Metric] = {}
        for sample in self._samples:
            name = exposed_name(sample.name)
            if name not in families:
                families[name] = _family(name)
            families[name].add_sample(name, sample.labels, sample.value)
        yield from families.values()


def exposed_name(name: str) -> str:
    """Return the name under which a sample is exposed: with the prefix, and `_total` where it is a counter."""
    full = name if name.startswith(PREFIX) else PREFIX + name
    return f"{full}_total" if full not in CATALOGUE and f"{full}_total" in CATALOGUE else full


def _family(name: str) -> Metric:
    info = CATALOGUE.get(name)
    if info is None:
        return Metric(name, "Not in the catalogue of this version.", "untyped")
    # The client library wants a counter's family without the suffix that its samples have.
    return Metric(name.removesuffix("_total") if info.kind == "counter" else name, info.help, info.kind)
