"""One instance as the analyzers see it: canonical levels, increases, events of the running incarnation, states."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property

from pdctl.diagnose.events import LogReader, Occurrence, Work
from pdctl.diagnose.health_body import status_of
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.reading import Reading, Readings
from pdctl.dialects.signals import Event, Gauge
from pdctl.evidence.records import Get, Process

_START_SLACK = timedelta(seconds=90)
"""A process is a little older than its first log line, clocks differ a little."""
_END = timedelta(minutes=15)
"""How long before a restart the reason for it may stand in the log."""
_FRESH_S = 7200.0
"""After two hours of service a restart explains nothing of what happens now."""
_CLOCK_SLACK_S = 900.0
"""Files are taken a little after one another; a quarter of an hour is another zone or clock."""
_NEAR = timedelta(seconds=30)
_SOCKETS = "sockets.toml"
_STARTING = (Event.STARTED, Event.LOADING, Event.LOADED, Event.COMPILING)


class InstanceView(Readings):
    """Numbers, log and state of one instance; computed once, on demand."""

    # Log

    @cached_property
    def _read(self) -> tuple[list[Occurrence], list[Work]]:
        return LogReader(self.is_router).read(self.raw.log or ())

    @property
    def has_log(self) -> bool:
        return bool(self.raw.log)

    @cached_property
    def log_ends_at(self) -> datetime | None:
        """When the last line was printed."""
        return max((line.at for line in self.raw.log or () if line.at), default=None)

    @cached_property
    def log_begins_at(self) -> datetime | None:
        """When the first line was printed."""
        return min((line.at for line in self.raw.log or () if line.at), default=None)

    @cached_property
    def started_at(self) -> datetime | None:
        """When the running incarnation began (of a dead one: when the last one did)."""
        alive = [item.started_at for item in self.processes if item.state != "gone" and item.started_at]
        known = alive or [item.started_at for item in self.processes if item.started_at]
        by_process = min(known, default=None)
        by_log = self._last_start
        if by_process and by_log:
            return max(by_process, by_log)
        return by_process or by_log

    @cached_property
    def _last_start(self) -> datetime | None:
        """Start of the last run of start-up lines: one begins when such a line follows work or a minute of silence."""
        start: datetime | None = None
        last: datetime | None = None
        is_in_run = False
        for item in self._read[0]:
            if item.event not in (*_STARTING, Event.READY) or item.at is None:
                is_in_run = is_in_run and item.event in (Event.ACCESS, Event.KV_POOL_SIZE, Event.ENGINE_ID)
                continue
            is_new = item.event is Event.STARTED and (
                not is_in_run or last is None or item.at - last > timedelta(minutes=5)
            )
            if is_new:
                start = item.at
            is_in_run = item.event is not Event.READY
            last = item.at
        return start

    @cached_property
    def occurrences(self) -> tuple[Occurrence, ...]:
        """Events of the running incarnation."""
        return tuple(item for item in self._read[0] if self._is_current(item.at))

    @cached_property
    def old_occurrences(self) -> tuple[Occurrence, ...]:
        """Events of ended incarnations: they explain why it was restarted, and nothing else."""
        return tuple(item for item in self._read[0] if not self._is_current(item.at))

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """Work lines of the running incarnation."""
        return tuple(item for item in self._read[1] if self._is_current(item.at))

    @cached_property
    def all_works(self) -> tuple[Work, ...]:
        return tuple(self._read[1])

    def _is_current(self, at: datetime | None) -> bool:
        return at is None or self.started_at is None or at >= self.started_at - _START_SLACK

    def events(self, *kinds: Event) -> tuple[Occurrence, ...]:
        """Return the running incarnation's events of these kinds, in order."""
        return tuple(item for item in self.occurrences if item.event in kinds)

    def all_events(self, *kinds: Event) -> tuple[Occurrence, ...]:
        """Return events of these kinds of every incarnation in the log."""
        return tuple(item for item in self._read[0] if item.event in kinds)

    @cached_property
    def last_step(self) -> Work | None:
        """The last line that proves a step."""
        return next((item for item in reversed(self.works) if item.is_step), None)

    @cached_property
    def last_work(self) -> Work | None:
        """The last work line; an engine of both roles prints two kinds, whose levels are taken together."""
        if not self.works:
            return None
        last = self.works[-1]
        near = [work for work in self.works[-40:] if last.at is None or work.at is None or last.at - work.at <= _NEAR]
        newest: dict[tuple[str, str], Work] = {}
        for work in near:
            newest[work.rank, work.kind] = work
        levels: dict[Gauge, float] = {}
        for work in newest.values():
            for gauge, value in work.levels.items():
                levels[gauge] = max(levels.get(gauge, value), value)
        return Work(last.at, last.rank, levels, last.kind, last.is_step, last.place)

    def end_events(self, *kinds: Event) -> tuple[Occurrence, ...]:
        """Return events of the running incarnation, and of the end of the one before when that end is fresh.

        They explain why it was restarted. Anything older belongs to the time line only.
        """
        start, age = self.started_at, self.age_of_process_s
        is_fresh = start is not None and age is not None and age < _FRESH_S
        return tuple(
            item
            for item in self._read[0]
            if item.event in kinds
            and (self._is_current(item.at) or (is_fresh and item.at and start and start - item.at <= _END))
        )

    def age_s(self, at: datetime | None) -> float | None:
        """Return the seconds between a time and the capture; None for a time after it: some clock is wrong."""
        seconds = (self.now - at).total_seconds() if self.now and at else None
        return None if seconds is not None and seconds < -_CLOCK_SLACK_S else seconds

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """Processes of the running incarnation; of a dead instance, all that are known."""
        born = min(
            (item.started_at for item in self.raw.processes if item.state != "gone" and item.started_at),
            default=None,
        )
        return tuple(
            item
            for item in self.raw.processes
            if item.state != "gone" or born is None or item.started_at is None or item.started_at >= born - _START_SLACK
        )

    @cached_property
    def age_of_process_s(self) -> float | None:
        """Seconds since the running incarnation began."""
        return self.age_s(self.started_at)

    @cached_property
    def last_run_s(self) -> float | None:
        """How long the running incarnation, or the last one, has lived; None where its end is not known."""
        if not self.is_gone:
            return self.age_of_process_s
        spans = (item.ended_at - item.started_at for item in self.processes if item.ended_at and item.started_at)
        return max((span.total_seconds() for span in spans), default=None)

    @cached_property
    def is_gone(self) -> bool | None:
        """Whether no process of it is left; None when nobody looked."""
        if self.processes and any(item.state for item in self.processes):
            return all(item.state in ("gone", "Z") for item in self.processes)
        return None

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

    @property
    def front_inflight(self) -> Reading | None:
        """Return the requests in flight at a frontend; None where nobody is connected who could have sent them.

        Routers may go on counting requests whose client has left (smg 1.13.0 by worker, measured).
        """
        return None if self.is_connected is False else self.gauge(Gauge.FRONT_INFLIGHT)

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
        marks = [item for item in self.occurrences if item.event in (*_STARTING, Event.READY)]
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
        last_start = next((item for item in reversed(marks) if item.event in _STARTING), None)
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


def _not_before(at: datetime | None, other: datetime | None) -> bool:
    return at is None or other is None or at >= other
