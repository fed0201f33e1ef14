"""The running incarnation of one instance: since when it runs, and what it printed since."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property

from pdctl.diagnose.events import LogReader, Occurrence, Work
from pdctl.diagnose.kernel_lines import is_about, is_of_host
from pdctl.diagnose.reading import Readings
from pdctl.dialects.signals import Event, Gauge
from pdctl.evidence.records import Process

STARTING = (Event.STARTED, Event.LOADING, Event.LOADED, Event.COMPILING)
_START_SLACK = timedelta(seconds=90)
"""A process is a little older than its first log line, clocks differ a little."""
_END = timedelta(minutes=15)
"""How long before a restart the reason for it may stand in the log."""
_FRESH_S = 7200.0
"""After two hours of service a restart explains nothing of what happens now."""
_CLOCK_SLACK_S = 900.0
"""Files are taken a little after one another; a quarter of an hour is another zone or clock."""
_NEAR = timedelta(seconds=30)


class Incarnation(Readings):
    """Its processes and its log; of ended ones only what explains why it was restarted. Computed once, on demand."""

    @cached_property
    def _whole_read(self) -> tuple[list[Occurrence], list[Work]]:
        return LogReader(self.is_router).read(self.raw.log or ())

    @cached_property
    def _read(self) -> tuple[list[Occurrence], list[Work]]:
        """What is about this instance: the kernel tells of the whole host."""
        every, works = self._whole_read
        deaths = [item for item in every if item.event is Event.CHILD_DIED]
        return [item for item in every if is_about(self.raw, item, deaths)], works

    def told_of_host(self, *kinds: Event) -> tuple[Occurrence, ...]:
        """Return what the kernel told, whoever on the host it is about."""
        return tuple(item for item in self._whole_read[0] if item.event in kinds and is_of_host(item))

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
            if item.event not in (*STARTING, Event.READY) or item.at is None:
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
