"""The records that evidence is made of. `None` and an empty tuple mean unknown, never zero and never healthy."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Where a fact was read: a file below the incident directory, and a line, metric or pointer in it."""

    file: str
    line: int | None = None
    pointer: str | None = None

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.file}:{self.line}"
        return f"{self.file} {self.pointer}" if self.pointer else self.file


class Problem(msgspec.Struct, frozen=True):
    """Something that could not be read; the rest was read all the same."""

    place: Place
    message: str


class Get(msgspec.Struct, frozen=True):
    """What one GET of an endpoint answered."""

    path: str
    status: int | None = None
    """None: no answer."""
    took_ms: float | None = None
    timeout_ms: float | None = None
    error: str | None = None
    """refused | timeout | reset | ..."""
    body: str | None = None


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process as the operating system sees it."""

    pid: int | None = None
    ppid: int | None = None
    name: str = ""
    title: str = ""
    rank: str = ""
    state: str | None = None
    """R | S | D | T | Z | gone"""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    restarts: int | None = None
    cpu_percent: float | None = None
    rss_mb: float | None = None
    cmdline: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    oom_killed: bool = False
    cgroup_oom_kills: int | None = None
    """Processes of its control group that the kernel killed for memory since the group was made."""
    tracer_pid: int | None = None
    wchan: str | None = None

    @property
    def label(self) -> str:
        """Return the most telling name it has."""
        return self.title or self.name or f"pid {self.pid}"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device."""

    index: int | None = None
    bus: str | None = None
    """The slot it is plugged into, as the driver writes it."""
    util_percent: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    power_w: float | None = None
    xid: tuple[int, ...] = ()
    ecc_errors: int | None = None


class SourceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The code and settings that run."""

    version: str | None = None
    commit: str | None = None
    flags: tuple[str, ...] = ()
    env: dict[str, str] = {}
    fixes: dict[str, bool] = {}
    """Marker of a fix -> whether the running code has it."""
    page_size: int | None = None
    kv_dtype: str | None = None
    model: str | None = None

    def flag(self, name: str) -> str | None:
        """Return the value after a flag (`""` for a bare one), None when it is not given."""
        for index, word in enumerate(self.flags):
            if word == name:
                value = self.flags[index + 1] if index + 1 < len(self.flags) else ""
                return "" if value.startswith("--") else value
            if word.startswith(name + "="):
                return word.partition("=")[2]
        return None


OWN_REQUEST = "pdctl-probe-"
"""How the ids of pdctl's own requests begin."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What a request sent through the path did."""

    at: datetime | None = None
    via: str = ""
    status: int | None = None
    took_ms: float | None = None
    timeout_ms: float | None = None
    error: str | None = None
    stage: str | None = None
    output: str | None = None
    """same | close | garbled | unchecked"""
    id: str | None = None
    pair: str | None = None

    @property
    def timed_out(self) -> bool:
        """Return whether no answer came in time. One that ended before its time is over, whatever it lacks."""
        if self.status is not None or self.error is not None:
            return self.error == "timeout"
        return self.took_ms is None or self.timeout_ms is None or self.took_ms >= self.timeout_ms

    @property
    def passed(self) -> bool:
        """Return whether an answer came and was not wrong."""
        return self.status == 200 and self.output != "garbled" and not self.error


class Socket(msgspec.Struct, frozen=True, kw_only=True):
    """One TCP socket of an instance's processes. Addresses are `HOST:PORT`."""

    state: str = ""
    """`listen`, `established`, `close_wait` and so on, as the kernel has them."""
    local: str = ""
    remote: str = ""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """How the files of one instance came about."""

    clock_offset_ms: float | None = None
    log_offset_min: int = 0
    """Minutes to subtract from log times to get UTC."""
    log_covers_since: datetime | None = None
    failed: dict[str, str] = {}
    """File name -> why it could not be taken."""


class LogLine(msgspec.Struct, frozen=True):
    """One line an engine printed."""

    number: int
    """1-based."""
    at: datetime | None
    """UTC; lines without a time of their own have that of the line before."""
    rank: str
    """`TP0`, `DP5 TP5 EP5`, `` where the line does not say."""
    message: str
    """Without prefix, colours and control characters; at most 4,000 characters."""
    file: str


class Frame(msgspec.Struct, frozen=True):
    """One frame of a stack, innermost first."""

    function: str
    file: str = ""


class Thread(msgspec.Struct, frozen=True):
    """One thread of a dump."""

    name: str
    is_active: bool
    frames: tuple[Frame, ...]

    def has(self, *functions: str) -> bool:
        """Return whether a frame is one of the functions (the last part of a qualified C++ name counts)."""
        return any(frame.function in functions for frame in self.frames)


class ProcessStack(msgspec.Struct, frozen=True):
    """The dump of one process."""

    pid: int
    title: str
    threads: tuple[Thread, ...]
    place: Place

    @property
    def main(self) -> Thread | None:
        """Return the thread that says where the rank is: the one that computes, where there is one, else the main."""
        for thread in self.threads:
            if thread.has("_executor_loop", "_executor_loop_overlap", "compute_plan"):
                return thread
        return next((thread for thread in self.threads if thread.name == "MainThread"), None) or (
            self.threads[0] if self.threads else None
        )


class Sample(msgspec.Struct, frozen=True):
    """One line of a Prometheus exposition."""

    labels: dict[str, str]
    value: float


class Exposition(msgspec.Struct, frozen=True):
    """A scrape: series name -> samples. Histogram buckets are left out."""

    series: dict[str, tuple[Sample, ...]]
    file: str
