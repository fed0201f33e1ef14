"""One collector by itself, for a person who wants to look: stacks or metrics of some instances."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from pdctl.collect import locate, metrics, stacks
from pdctl.collect.concurrency import all_of
from pdctl.collect.context import Context, Deadline, guarded
from pdctl.collect.fetch import Fetcher
from pdctl.collect.plan import STACKS
from pdctl.collect.records import Mode, Taken
from pdctl.collect.site import sites_of
from pdctl.collect.target import Target
from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.errors import UsageError
from pdctl.evidence.dumps import parse_dump_json
from pdctl.evidence.exposition import parse_exposition
from pdctl.evidence.records import Exposition, ProcessStack
from pdctl.hosts.hosts import Hosts


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of one instance, or why there are none."""

    instance: str
    processes: tuple[ProcessStack, ...]
    problem: str | None
    took_ms: float | None
    pause_ms: float | None


class Moving(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of one instance; `increase` is None where there was no earlier one."""

    instance: str
    series: str
    labels: dict[str, str]
    value: float
    increase: float | None


class Scrapes(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of all instances that answered, and the others' problems by instance."""

    samples: tuple[Moving, ...]
    problems: dict[str, str]


def select(deployment: Deployment, names: Sequence[str]) -> Deployment:
    """Return the deployment with these instances only, all without names. Raises UsageError for an unknown one."""
    known = [instance.name for instance in deployment.instances]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"{deployment.name!r} has no instance {unknown[0]!r}", f"there are {', '.join(known)}")
    kept = tuple(instance for instance in deployment.instances if not names or instance.name in names)
    return msgspec.structs.replace(deployment, instances=kept)


def dump(
    deployment: Deployment, folder: StateFolder, mode: Mode, timeout_s: float, progress: Callable[[str], None]
) -> tuple[Dump, ...]:
    """Dump every process of every instance on the hosts that can be read.

    What makes processes stand still is done to one instance after the other, each announced by `progress`: never do
    all ranks of both roles stand at once.
    """

    async def of_target(target: Target, context: Context) -> tuple[str, Taken]:
        items = await guarded(target, (STACKS,), timeout_s, _dumping(target, context, mode))
        return target.name, items[0]

    async def of_all_sites() -> dict[str, Taken]:
        with Hosts() as hosts:
            context = Context(fetcher=Fetcher(hosts), deadline=Deadline(timeout_s))
            sites = sites_of(deployment, hosts, context)
            await all_of(site.survey() for site in sites)
            found = [
                (target, site.context)
                for site in sites
                for target in locate.targets(deployment, folder, site.table, site.name)
            ]
            if mode is Mode.NONBLOCKING:
                return dict(await all_of(of_target(target, context) for target, context in found))
            taken: dict[str, Taken] = {}
            for target, context in found:
                progress(f"{target.name}: its processes stand still, each for tenths of a second")
                name, item = await of_target(target, context)
                taken[name] = item
            return taken

    taken = asyncio.run(of_all_sites())
    return tuple(_dump(instance.name, taken[instance.name]) for instance in deployment.instances)


def _dumping(target: Target, context: Context, mode: Mode) -> Callable[[], Awaitable[list[Taken]]]:
    return lambda: stacks.take(target, context, STACKS, mode)


def _dump(name: str, taken: Taken) -> Dump:
    processes, _ = parse_dump_json(taken.content, STACKS) if taken.content else ((), ())
    return Dump(instance=name, processes=processes, problem=taken.error, took_ms=taken.took_ms, pause_ms=taken.pause_ms)


def scrape(deployment: Deployment, interval_s: float, timeout_s: float) -> Scrapes:
    """Scrape every instance, twice where `interval_s` is above zero."""

    async def both(fetcher: Fetcher) -> tuple[list[Taken], list[Taken]]:
        context = Context(fetcher=fetcher, deadline=Deadline(2 * timeout_s + interval_s), get_timeout_s=timeout_s)
        targets = [Target(instance=instance) for instance in deployment.instances]

        async def once() -> list[Taken]:
            every = await all_of(metrics.take(item, context, "metrics.txt") for item in targets)
            return [taken for items in every for taken in items]

        if interval_s <= 0:
            return [], await once()
        first = await once()
        await asyncio.sleep(interval_s)
        return first, await once()

    with Hosts() as hosts:
        first, second = asyncio.run(both(Fetcher(hosts)))
    return _moving([instance.name for instance in deployment.instances], first, second)


def _moving(names: Sequence[str], first: Sequence[Taken], second: Sequence[Taken]) -> Scrapes:
    samples: list[Moving] = []
    problems: dict[str, str] = {}
    earlier = [_exposition(taken) for taken in first] or [None] * len(names)
    for name, before, taken in zip(names, earlier, second, strict=True):
        now = _exposition(taken)
        if now is None:
            problems[name] = taken.error or "its metrics cannot be read"
            continue
        old = _values(before) if before else {}
        for (series, labels), value in _values(now).items():
            known = old.get((series, labels))
            increase = None if known is None else value - known
            samples.append(Moving(instance=name, series=series, labels=dict(labels), value=value, increase=increase))
    return Scrapes(samples=tuple(samples), problems=problems)


def _exposition(taken: Taken) -> Exposition | None:
    return parse_exposition(taken.content, taken.name)[0] if taken.content else None


def _values(exposition: Exposition) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (series, tuple(sample.labels.items())): sample.value
        for series, samples in exposition.series.items()
        for sample in samples
    }
