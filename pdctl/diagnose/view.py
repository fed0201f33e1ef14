"""One instance as the analyzers see it: canonical levels, increases, events of the running incarnation, states."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.health_body import status_of
from pdctl.diagnose.incarnation import STARTING, Incarnation
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.reading import Reading
from pdctl.dialects.signals import Counter, Event, Gauge
from pdctl.evidence.records import Get, Place

_SOCKETS = "sockets.toml"
_SUCCESSES = (Counter.REQUESTS_DONE, Counter.TRANSFERS_DONE)


class InstanceView(Incarnation):
    """Numbers, log and state of one instance; computed once, on demand."""

    @cached_property
    def is_stopped(self) -> bool:
        """Whether a process of it is stopped (state T): alive for the kernel, it does nothing."""
        return any(item.state == "T" for item in self.processes)

    @cached_property
    def is_connected(self) -> bool | None:
        """Whether anybody is connected to the port that it serves on; None where its sockets are not all known."""
        sockets, port = self.raw.sockets, self.raw.url.rstrip("/").rpartition(":")[2]
        here = {item.state for item in sockets if item.local.rpartition(":")[2] == port}
        if "listen" not in here or len(sockets) >= LIMITS.most_sockets or _SOCKETS in self.raw.capture.failed:
            return None
        return "established" in here

    def telling(self, *kinds: Event) -> tuple[Occurrence, ...]:
        """Return the running incarnation's events of these kinds whose state may still show."""
        return tuple(item for item in self.events(*kinds) if self.still_tells(item))

    def still_tells(self, item: Occurrence) -> bool:
        """Return whether what a line said may still be so: it is young, or its rank has had no success since."""
        at, replica = item.at, _replica_of(item.rank)
        age = self.age_s(at)
        if at is None or age is None or age <= LIMITS.onset_s:
            return True
        steps = [work for work in self.works if work.is_step and work.at is not None and work.at > at]
        if any(_replica_of(work.rank) == replica for work in steps):
            return False
        counted = any((rise := self.rise(counter)) is not None and rise.value > 0 for counter in _SUCCESSES)
        # The counters are those of all replicas: they are this one's where no other works.
        return bool(steps) or not counted

    def gauge(self, gauge: Gauge) -> Reading | None:
        """Return a level. A frontend to which nobody is connected holds no requests, whatever it counts.

        Routers may go on counting requests whose client has left (smg 1.13.0 by worker, measured).
        """
        if gauge is Gauge.FRONT_INFLIGHT and self.is_connected is False:
            return Reading(0.0, Place(f"{self.name}/{_SOCKETS}"), is_batch_written=False)
        return super().gauge(gauge)

    @cached_property
    def is_refusing(self) -> bool | None:
        """Whether nobody listens on its port."""
        if not self.raw.gets:
            return None
        return all(item.error in ("refused", "reset") and item.status is None for item in self.raw.gets)

    @cached_property
    def is_hanging(self) -> bool | None:
        """Whether a GET got no answer in time."""
        if not self.raw.gets:
            return None
        return any(item.error == "timeout" for item in self.raw.gets)

    @cached_property
    def is_mute(self) -> bool:
        """Whether it accepts connections and answered nothing at all."""
        return bool(self.raw.gets) and all(item.status is None and item.error == "timeout" for item in self.raw.gets)

    @property
    def lost_its_metrics(self) -> bool:
        """Whether it gave its metrics in the earlier sample and not in this one."""
        return self.raw.metrics_prev is not None and self.raw.metrics is None

    def get(self, *paths: str) -> Get | None:
        """Return the answer of the first of these endpoints that was asked."""
        return next((item for path in paths for item in self.raw.gets if item.path.partition("?")[0] == path), None)

    @cached_property
    def health(self) -> int | None:
        """Status of /health or its like; None when there was no answer or nobody asked."""
        answer = self.get("/health", "/live", "/readiness", "/health_generate")
        return answer.status if answer else None

    @cached_property
    def is_alive(self) -> bool | None:
        """Whether somebody answers there, or works."""
        if any(item.status is not None for item in self.raw.gets):
            return True
        if self.is_gone or self.is_refusing:
            return False
        if self.is_gone is False or self.raw.metrics is not None:
            return True
        # Of one that answers nothing only a fresh step tells that it works; other lines may be older than its stop.
        is_mute = self.is_mute
        age = self.age_s(self.last_step.at if self.last_step else None) if is_mute else self.age_s(self.log_ends_at)
        has_spoken = age is not None and age < (LIMITS.patience_s if is_mute else LIMITS.just_now_s)
        return True if has_spoken and not self.ended else None

    @cached_property
    def ended(self) -> Occurrence | None:
        """The line that says the running incarnation ended, if it is among the last."""
        ends = self.events(Event.ENGINE_DIED, Event.FATAL_SIGNAL, Event.CHILD_DIED, Event.TERMINATED)
        if not ends:
            return None
        last = ends[-1]
        is_after = self.last_work is not None and last.at and self.last_work.at and self.last_work.at > last.at
        return None if is_after else last

    @cached_property
    def is_starting(self) -> bool | None:
        """Whether it loads, compiles or warms up: it says so, or start-up lines and no READY, work or request after."""
        if status_of(self.raw.gets) == "loading":
            return True
        marks = [item for item in self.occurrences if item.event in (*STARTING, Event.READY)]
        if not marks:
            return None
        if self.ended is not None:
            return False
        if self.follows is not None:
            return None
        if self.health == 200 and marks[-1].event is not Event.COMPILING:
            # SGLang, vLLM and Dynamo answer 200 only once they can serve; kernels may still be compiled after that.
            return False
        last_ready = next((item for item in reversed(marks) if item.event is Event.READY), None)
        last_start = next((item for item in reversed(marks) if item.event in STARTING), None)
        if last_start is None:
            return False
        if last_ready is not None and _not_before(last_ready.at, last_start.at):
            return False
        return not any(item.at and last_start.at and item.at > last_start.at for item in self.works)

    @cached_property
    def follows(self) -> str | None:
        """Its node rank when it does not lead its group: such nodes serve no HTTP and never say that they are ready."""
        source = self.raw.source
        words = [
            *(source.flags if source else ()),
            *(word for item in self.processes for word in item.cmdline),
        ]
        for index, word in enumerate(words):
            if word == "--node-rank" and index + 1 < len(words) and words[index + 1] not in ("0", ""):
                return words[index + 1]
        return None

    @property
    def version(self) -> str | None:
        return (self.raw.source.version if self.raw.source else None) or self.raw.version

    @property
    def transfer(self) -> str | None:
        """Transfer backend: what the flags say, else the topology."""
        source = self.raw.source
        return (source.flag("--disaggregation-transfer-backend") if source else None) or self.raw.transfer

    def restarts(self) -> int:
        """Return the highest restart count among its processes."""
        return max((item.restarts or 0 for item in self.processes), default=0)


def _replica_of(rank: str) -> str:
    """Return which of an instance's replicas a rank belongs to: ranks of one take every step together."""
    return next((word for word in rank.split() if word.startswith("DP")), "")


def _not_before(at: datetime | None, other: datetime | None) -> bool:
    return at is None or other is None or at >= other
