"""One collection: two samples of every instance, everything at once, complete by its deadline whatever hangs.

first sample over HTTP ──────────────────────────────────────────┐
of each host by itself: survey ─> logs, source, kernel, devices ──┼─> capture.toml
`interval_s` after the start ─> second sample, processes ─────────┘
tier 1: a dump beside each sample; tier 2: native dumps at the end
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pdctl.collect import host_processes, locate, plan, records
from pdctl.collect.context import FLEET, FLEET_GET_S, GET_S, STOPPED_GET_S, Context, Deadline
from pdctl.collect.credentials import sent_keys
from pdctl.collect.fetch import Fetcher
from pdctl.collect.host_facts import HostFacts
from pdctl.collect.incident import IncidentDirectory
from pdctl.collect.records import Mode
from pdctl.collect.run import Run
from pdctl.collect.site import Site, sites_of
from pdctl.collect.summary import CollectionSummary, summarise
from pdctl.collect.target import Target
from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder, state_root
from pdctl.errors import UsageError
from pdctl.evidence.credentials import Credentials
from pdctl.hosts.host import LOCAL
from pdctl.hosts.hosts import Hosts

FINISH_S = 0.5
"""Kept of the deadline for writing what is known."""
DUMP_GAP_S = 1.0
"""Between two dumps of a stall that is suspected after the samples were taken."""

Progress = Callable[[str], None]
Targets = tuple[Target, ...]
Place = tuple[Site, asyncio.Future[Targets]]
"""A host, and its instances once they are found."""


def collect(
    deployment: Deployment,
    *,
    tier: int = 0,
    interval_s: float = 5.0,
    timeout_s: float = 15.0,
    out: Path,
    progress: Progress = lambda line: None,
    prometheus: str | None = None,
) -> CollectionSummary:
    """Fill the incident directory `out`; it is complete within `timeout_s`, and says what could not be had.

    Tier 0 harms nothing; 1 adds two py-spy dumps of every rank that do not stop it; 2 adds native dumps, for which
    each process stands still (some tenths of a second). Raises UsageError for a tier or times that cannot be,
    PdctlError where `out` cannot be made.
    """
    collector = Collector(deployment, out, progress, prometheus=prometheus)
    return collector.take(tier=tier, interval_s=interval_s, timeout_s=timeout_s)


class Collector:
    """Fills one directory, in one go or in several: `take` first, then `again` for as long as a stall is suspected."""

    def __init__(
        self,
        deployment: Deployment,
        out: Path,
        progress: Progress = lambda line: None,
        folder: StateFolder | None = None,
        prometheus: str | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        """Make the directory. `prometheus` is the URL of one that keeps the engines' history. Raises PdctlError."""
        self._deployment = deployment
        self._directory = IncidentDirectory(out, deployment, Credentials(sent_keys(deployment)))
        self._folder = folder or StateFolder(state_root(), deployment.name)
        self._remembers = folder is not None
        self._hosts = hosts or Hosts()
        # One for all runs: it counts what was done to the system.
        self._fetcher = Fetcher(self._hosts)
        self._progress = progress
        self._prometheus = prometheus
        self._prev_at: datetime | None = None
        self._facts: dict[str, HostFacts] = {}

    def take(
        self, *, tier: int = 0, interval_s: float = 5.0, timeout_s: float = 15.0, dumps_stopped: bool = False
    ) -> CollectionSummary:
        """Take both samples and all that surrounds them; with `dumps_stopped` tier 1 of what a signal holds."""
        if tier not in (0, 1, 2) or interval_s < 0 or timeout_s < interval_s + 1:
            raise UsageError(
                f"tier {tier}, interval {interval_s:g} s, timeout {timeout_s:g} s do not go together",
                "use tier 0, 1 or 2, and a timeout at least one second above the interval",
            )
        return asyncio.run(self._run(timeout_s, lambda run: self._both(run, tier, interval_s, dumps_stopped)))

    @property
    def dumped(self) -> frozenset[str]:
        """Return the instances of which two dumps were taken, or could not be."""
        taken = self._directory.taken
        return frozenset(name for name, files in taken.items() if {plan.STACKS_PREV, plan.STACKS} <= files.keys())

    def keep(self, name: str, content: bytes) -> None:
        """Add a file of the caller's to the directory, masked like all others."""
        self._directory.write(name, content)

    def again(
        self, *, tier: int = 0, timeout_s: float = 10.0, names: Collection[str] | None = None
    ) -> CollectionSummary:
        """Take the second sample anew; the first stays. Tiers 1 and 2 dump only the instances in `names`."""
        if self._prev_at is None:
            raise UsageError("there is no first sample yet", "take one first")
        return asyncio.run(self._run(timeout_s, lambda run: self._second_only(run, tier, names)))

    def dump(self, names: Collection[str], timeout_s: float = 10.0) -> CollectionSummary:
        """Add two dumps of these instances (tier 1); the samples stay those that were judged."""
        return asyncio.run(self._run(timeout_s, lambda run: self._dumps_only(run, names)))

    async def _run(self, timeout_s: float, body: Callable[[Run], Awaitable[None]]) -> CollectionSummary:
        started = time.monotonic()
        is_fleet = len(self._deployment.instances) > FLEET
        context = Context(
            fetcher=self._fetcher,
            deadline=Deadline(timeout_s - FINISH_S),
            is_fleet=is_fleet,
            get_timeout_s=FLEET_GET_S if is_fleet else GET_S,
            prometheus=self._prometheus,
        )
        run = Run(context, self._directory)
        try:
            await body(run)
        finally:
            # Also after Ctrl-C: what was taken stays readable.
            run.give_up()
            self._write_captures()
            await run.ended()
        return summarise(self._directory, self._fetcher, took_s=round(time.monotonic() - started, 2))

    async def _both(self, run: Run, tier: int, interval_s: float, dumps_stopped: bool) -> None:
        ends_at = time.monotonic() + interval_s
        self._prev_at = records.now()
        self._directory.write_topology(self._prev_at, None)
        self._progress(f"first sample of {len(self._deployment.instances)} instances")
        for line in locate.unreachable_urls(self._deployment):
            self._progress(line)
        # What is asked over HTTP waits for no host: one of them may hang.
        bare = [Target(instance=instance) for instance in self._deployment.instances]
        run.start(job for target in bare for job in plan.first_sample(target, run.context))
        sites = sites_of(self._deployment, self._hosts, run.context)
        located = [run.begin(self._surround(run, site, tier, dumps_stopped)) for site in sites]
        await asyncio.sleep(max(0.0, min(ends_at - time.monotonic(), run.deadline.left_s)))
        # A first sample that hangs does not hold the second one up.
        await self._second(run, list(zip(sites, located, strict=True)), tier, None)
        await run.all_done()

    async def _surround(self, run: Run, site: Site, tier: int, dumps_stopped: bool) -> Targets:
        """Find a host's instances, dump them, and begin to read what needs no second look."""
        targets = await self._found(site)
        suspects = [one for one in targets if tier >= 1 or (dumps_stopped and site.table.is_stopped(one.pid))]
        dumps = [job for target in suspects for job in plan.dumps(target, site.context, plan.STACKS_PREV)]
        if dumps:
            await run.do(site.bearable(dumps))
        self._facts[site.name] = facts = await site.read_facts(targets)
        surroundings = (job for target in targets for job in plan.in_between(target, site.context, facts))
        run.start(site.bearable(surroundings))
        return targets

    async def _found(self, site: Site) -> Targets:
        """Survey a host; what a signal holds there is not waited for as long as what may be busy."""
        await site.survey()
        targets = locate.targets(self._deployment, self._folder, site.table, site.name)
        if self._remembers and site.name == LOCAL:
            locate.remember(self._deployment, self._folder, site.table, self._progress)
        for target in targets:
            self._fetcher.hurry(target.name, STOPPED_GET_S if site.table.is_stopped(target.pid) else None)
        return targets

    async def _second_only(self, run: Run, tier: int, names: Collection[str] | None) -> None:
        sites = sites_of(self._deployment, self._hosts, run.context)
        located = [run.begin(self._find_again(run, site, tier, names)) for site in sites]
        if tier >= 1:
            # The second dump follows the first one, of which the sample knows nothing.
            await asyncio.wait(located)
        await self._second(run, list(zip(sites, located, strict=True)), tier, names)

    async def _dumps_only(self, run: Run, names: Collection[str]) -> None:
        async def both(site: Site) -> None:
            targets = await self._find_again(run, site, 1, names)
            dumps = (job for one in _suspects(targets, names) for job in plan.dumps(one, site.context, plan.STACKS))
            await run.do(site.bearable(dumps))

        for site in sites_of(self._deployment, self._hosts, run.context):
            run.begin(both(site))
        await run.all_done()

    async def _find_again(self, run: Run, site: Site, tier: int, names: Collection[str] | None) -> Targets:
        targets = await self._found(site)
        taken = self._directory.taken
        undumped = [item for item in _suspects(targets, names) if plan.STACKS_PREV not in taken[item.name]]
        if tier >= 1 and undumped:
            dumps = (job for target in undumped for job in plan.dumps(target, site.context, plan.STACKS_PREV))
            await run.do(site.bearable(dumps))
            await asyncio.sleep(run.deadline.at_most(DUMP_GAP_S))
        return targets

    async def _second(self, run: Run, places: Sequence[Place], tier: int, names: Collection[str] | None) -> None:
        self._directory.write_topology(records.now(), self._prev_at)
        self._progress("second sample")
        bare = [Target(instance=instance) for instance in self._deployment.instances]
        told = run.start(job for target in bare for job in plan.second_sample(target, run.context))
        await asyncio.gather(told, *(run.begin(self._present(run, site, found, tier, names)) for site, found in places))
        if tier >= 2:
            # One instance after the other: never all ranks of both roles at a standstill.
            for site, found in places:
                for target in _suspects(await found, names):
                    self._progress(f"{target.name}: native stacks; its processes stand still for tenths of a second")
                    await run.do(site.bearable(plan.dumps(target, site.context, plan.NATIVE, Mode.NATIVE)))

    async def _present(
        self, run: Run, site: Site, found: asyncio.Future[Targets], tier: int, names: Collection[str] | None
    ) -> None:
        targets = await found
        roots = sorted({target.pid for target in targets if target.pid is not None})
        after = await site.details(roots) if roots else host_processes.Table()
        facts = self._facts[site.name]
        jobs = [job for target in targets for job in plan.present(target, site.context, facts, after)]
        taken = self._directory.taken
        suspects = [
            target for target in _suspects(targets, names) if tier >= 1 or plan.STACKS_PREV in taken[target.name]
        ]
        jobs += [job for target in suspects for job in plan.dumps(target, site.context, plan.STACKS)]
        await run.do(site.bearable(jobs))

    def _write_captures(self) -> None:
        for instance in self._deployment.instances:
            is_known = instance.host != LOCAL or locate.is_here(instance)
            clock = self._hosts.of(instance.host).clock if is_known else None
            self._directory.set_clock(
                instance.name,
                offset_ms=round(1000 * clock.offset_s, 1) if clock else None,
                log_utc_offset=timedelta(seconds=clock.utc_offset_s) if clock else None,
            )
        self._directory.write_captures()


def _suspects(targets: Targets, names: Collection[str] | None) -> list[Target]:
    return [target for target in targets if names is None or target.name in names]
