"""Which collectors run for one instance, in which sample, and for how long at most: the table of collectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import msgspec

from pdctl.collect import gets, gpu, history, kernel, logs, metrics, processes, source, stacks
from pdctl.collect.context import Context
from pdctl.collect.host_facts import HostFacts
from pdctl.collect.host_processes import Table
from pdctl.collect.records import Mode, Status, Taken
from pdctl.collect.target import Target

METRICS, METRICS_PREV = "metrics.txt", "metrics.prev.txt"
STACKS, STACKS_PREV, NATIVE = "stacks.json", "stacks.prev.json", "native.json"


class Job(msgspec.Struct, frozen=True):
    """One collector of one instance: the files it makes, its deadline, and how it runs."""

    target: Target
    files: tuple[str, ...]
    limit_s: float
    run: Callable[[], Awaitable[Iterable[Taken]]]


def first_sample(target: Target, context: Context) -> list[Job]:
    """Return what is taken at the beginning, to be compared with the second sample."""
    return [
        Job(target, (METRICS_PREV,), 6.0, lambda: metrics.take(target, context, METRICS_PREV)),
        Job(target, gets.file_names(target, is_first=True), 6.0, lambda: gets.take(target, context, is_first=True)),
    ]


def in_between(target: Target, context: Context, host: HostFacts) -> list[Job]:
    """Return what needs no second look; it fills the time until the second sample."""

    async def host_files() -> list[Taken]:
        if target.pid is None and target.record is None:
            return [Taken(name=name, status=Status.ABSENT, error=target.why_no_pid) for name in (kernel.NAME, gpu.NAME)]
        pids = [row.pid for row in host.table.tree(target.pid)]
        return [host.kernel, gpu.taken(host.gpus, pids)]

    prometheus = context.prometheus
    asked = (
        [Job(target, (history.NAME,), 10.0, lambda: history.take(target, context, prometheus))] if prometheus else []
    )
    return [
        *asked,
        Job(target, logs.FILES[:1], 25.0, lambda: logs.take(target, context)),
        Job(target, (source.NAME,), 6.0, lambda: source.take(target, context, host)),
        Job(target, (kernel.NAME, gpu.NAME), 6.0, host_files),
    ]


def second_sample(target: Target, context: Context) -> list[Job]:
    """Return what an instance says of the present."""
    return [
        Job(target, (METRICS,), 6.0, lambda: metrics.take(target, context, METRICS)),
        Job(target, gets.file_names(target, is_first=False), 6.0, lambda: gets.take(target, context, is_first=False)),
    ]


def present(target: Target, context: Context, host: HostFacts, after: Table) -> list[Job]:
    """Return what the operating system says of the present."""
    return [Job(target, processes.FILES, 6.0, lambda: processes.take(target, context, host, after))]


def dumps(target: Target, context: Context, name: str, mode: Mode = Mode.NONBLOCKING) -> list[Job]:
    """Return one dump of the tree: tier 1 without stopping it, tier 2 with."""
    return [Job(target, (name,), 30.0, lambda: stacks.take(target, context, name, mode))]
