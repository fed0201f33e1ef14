"""The metric catalogue: every name this engine exposes, with type, help and labels. Names are never reused.

Scheduler and transfer report `Sample`s computed from live state at each scrape; the API process turns them
into the Prometheus text format. A sample whose name is not here is exposed as untyped rather than lost.
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
    _gauge("info", "Always 1; what this instance is.", "instance", "incarnation", "role", "version", "model"),
    _gauge("start_time_seconds", "Unix time at which the scheduler process started."),
    _gauge("ready_time_seconds", "Unix time at which the model was loaded."),
    _gauge("queue_length", "Requests in each queue.", "queue"),
    _gauge("queue_oldest_age_seconds", "Age of the oldest request in each queue; 0 when empty.", "queue"),
    _gauge("running_sequences", "Sequences in the current batch."),
    _counter("requests_total", "Sequences that ended, by how.", "result"),
    _counter("aborts_total", "Sequences ended by an abort, by reason.", "reason"),
    _counter("prompt_tokens_total", "Prompt tokens computed here."),
    _counter("cached_tokens_total", "Prompt tokens taken from the prefix cache."),
    _counter("output_tokens_total", "Tokens sampled here."),
    _counter("steps_total", "Forward steps.", "kind"),
    _counter("step_seconds_total", "Time spent in forward steps.", "kind"),
    _gauge("longest_step_seconds", "Longest forward step so far."),
    _counter("loop_ticks_total", "Turns of the scheduler loop, idle ones too."),
    _gauge("last_progress_time_seconds", "Unix time of the last step or finished request."),
    _gauge("loop_age_seconds", "Seconds since the loop last moved."),
    _gauge("thread_alive", "1 while a supervised thread runs.", "thread"),
    _counter("thread_restarts_total", "Crashes of a supervised thread, each answered by a restart.", "thread"),
    _gauge("kv_pages", "Pages by owner; they sum up to kv_pages_capacity, or there is a leak.", "owner"),
    _gauge("kv_pages_capacity", "Pages in the pool."),
    _gauge("kv_page_tokens", "Tokens of one page."),
    _gauge("kv_tokens_used", "Tokens whose pages are not free."),
    _gauge("kv_ledger_balanced", "1 when every page has exactly one owner; 0 is a leak."),
    _gauge("resident_memory_bytes", "Resident memory of the scheduler process."),
)

TRANSFER = (
    _gauge("rooms", "Live rooms by state.", "state"),
    _gauge("room_oldest_age_seconds", "Age of the oldest live room in each state.", "state"),
    _counter("transfers_total", "Rooms that ended, by result and peer.", "result", "peer"),
    _counter("transfer_bytes_total", "KV bytes READ (decode) or offered for reading (prefill).", "peer"),
    _counter("transfer_seconds_total", "Time from post to DONE, summed over READs.", "peer"),
    _counter("reads_total", "NIXL READs by result.", "result", "peer"),
    _counter("checksum_failures_total", "Chunks whose bytes were not what prefill had.", "peer"),
    _counter("fences_total", "Agents dropped to fence a room's pages.", "peer"),
    _gauge("fencing_rooms", "Ended rooms whose pages may still be written."),
    _counter("frames_total", "Control frames by kind.", "direction", "kind"),
    _counter("bad_frames_total", "Control frames that were dropped, by reason.", "reason"),
    _gauge("peers", "Peers by state of their control channel.", "state"),
    _counter("peer_incarnations_total", "New incarnations seen of a peer.", "peer"),
    _gauge("peer_silence_seconds", "Seconds since the last frame of a peer.", "peer"),
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
            if sample.name not in families:
                families[sample.name] = _family(sample.name)
            families[sample.name].add_sample(sample.name, sample.labels, sample.value)
        yield from families.values()


def _family(name: str) -> Metric:
    info = CATALOGUE.get(name)
    if info is None:
        return Metric(name, "Not in the catalogue of this version.", "untyped")
    # The client library wants a counter's family without the suffix that its samples have.
    return Metric(name.removesuffix("_total") if info.kind == "counter" else name, info.help, info.kind)
