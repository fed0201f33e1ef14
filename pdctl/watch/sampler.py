"""One sample of every instance, kept in memory: what an incident directory would hold of it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from pdctl.collect import gpu, host_processes, kernel, locate, plan, processes, records, source
from pdctl.collect.concurrency import all_of
from pdctl.collect.context import FLEET, STOPPED_GET_S, Context, Deadline, guarded
from pdctl.collect.fetch import Fetcher
from pdctl.collect.host_facts import HostFacts
from pdctl.collect.plan import Job
from pdctl.collect.records import Status, Taken
from pdctl.collect.site import Site, sites_of
from pdctl.collect.target import Target
from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.evidence import toml_files
from pdctl.evidence.folder import Folder
from pdctl.hosts.hosts import Hosts

GET_S = 2.0
"""Shorter than a diagnosis waits: who is slower is looked at more closely, and asked again with the next sample."""
SURVEY_S = 3.0
DEADLINE_S = 10.0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What all instances said at one moment."""

    at: datetime
    clock_s: float
    """When it was taken by the clock that never jumps; only between samples of one watch does it mean anything."""
    files: Mapping[str, bytes]
    """`INSTANCE/FILE` -> content, under the names of an incident's first sample."""
    took_s: float
    requests: int
    """GETs that were sent for it."""


class Sampler:
    """Asks the live endpoints of every instance. Processes are looked at only of those that do not answer."""

    def __init__(self, deployment: Deployment, folder: StateFolder, hosts: Hosts) -> None:
        self._deployment = deployment
        self._folder = folder
        self._hosts = hosts
        self._fetcher = Fetcher(hosts)
        self._silent: frozenset[str] = frozenset()

    async def take(self) -> Sample:
        """Ask all at once; a hung instance costs `GET_S`, all of them together `DEADLINE_S` at most."""
        at, clock_s, sent = records.now(), time.monotonic(), self._fetcher.requests
        context = Context(
            fetcher=self._fetcher,
            deadline=Deadline(DEADLINE_S),
            is_fleet=len(self._deployment.instances) > FLEET,
            get_timeout_s=GET_S,
        )
        targets = [Target(instance=instance) for instance in self._deployment.instances]
        # Who did not answer the last time is looked at while we wait for it once more.
        asking = _run(job for target in targets for job in plan.first_sample(target, context))
        files, known = await all_of([asking, self._processes(self._silent, context)])
        silent = frozenset(target.name for target in targets if not _answers(target.name, files))
        files |= known | await self._processes(silent - self._silent, context)
        for name in self._silent - silent:
            self._fetcher.hurry(name, None)
        self._silent = silent
        took_s = round(time.monotonic() - clock_s, 3)
        return Sample(at=at, clock_s=clock_s, files=files, took_s=took_s, requests=self._fetcher.requests - sent)

    async def _processes(self, names: Collection[str], context: Context) -> dict[str, bytes]:
        """Return what their hosts say of instances that do not answer: stopped, gone, or busy.

        Costs 0.2 s of one core there, and at most `SURVEY_S` where a host hangs.
        """
        looked = {item.host for item in self._deployment.instances if item.name in names}
        limited = msgspec.structs.replace(context, deadline=Deadline(SURVEY_S))
        sites = [site for site in sites_of(self._deployment, self._hosts, limited) if site.name in looked]
        found = await all_of(self._processes_at(site, names) for site in sites)
        return {name: content for files in found for name, content in files.items()}

    async def _processes_at(self, site: Site, names: Collection[str]) -> dict[str, bytes]:
        await site.survey()
        every = locate.targets(self._deployment, self._folder, site.table, site.name)
        targets = [target for target in every if target.name in names]
        for target in targets:
            self._fetcher.hurry(target.name, STOPPED_GET_S if site.table.is_stopped(target.pid) else None)
        roots = sorted({target.pid for target in targets if target.pid is not None})
        detailed = await site.details(roots) if roots else host_processes.Table()
        unread = Taken(name=kernel.NAME, status=Status.ABSENT)
        host = HostFacts(table=site.table, kernel=unread, gpus=gpu.Gpus(), sources=source.Sources())
        return await _run(_tree(target, site.context, host, detailed) for target in targets)


def _answers(name: str, files: Mapping[str, bytes]) -> bool:
    gets = Folder(name, files, []).rows("http.prev.toml", toml_files.gets)
    return any(get.status is not None for get in gets)


def _tree(target: Target, context: Context, host: HostFacts, detailed: host_processes.Table) -> Job:
    return Job(target, processes.FILES, SURVEY_S, lambda: processes.take(target, context, host, detailed))


async def _run(jobs: Iterable[Job]) -> dict[str, bytes]:
    listed: Sequence[Job] = tuple(jobs)
    taken = await all_of(guarded(job.target, job.files, job.limit_s, job.run) for job in listed)
    return {
        f"{job.target.name}/{item.name}": item.content
        for job, items in zip(listed, taken, strict=True)
        for item in items
        if item.content is not None
    }
