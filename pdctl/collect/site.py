"""One host during a collection: how it is reached, what runs there, and what was read there once for all instances."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from pdctl.collect import host_facts, host_processes
from pdctl.collect.context import ATTACHED_AT_ONCE, Context
from pdctl.collect.host_facts import HostFacts
from pdctl.collect.host_processes import Table
from pdctl.collect.plan import Job
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Deployment
from pdctl.hosts.host import LOCAL
from pdctl.hosts.hosts import Hosts

SURVEY_S = 3.0
REMOTE_SURVEY_S = 8.0
"""With the login, which takes seconds where names are slow or cores are few; a hung host costs only itself."""


@dataclass(slots=True)
class Site:
    """A host and what is known of it."""

    name: str
    context: Context
    table: Table = field(default_factory=Table)

    async def survey(self) -> None:
        """Read all of its processes briefly."""
        self.table = await self.details(())

    async def details(self, roots: Sequence[int]) -> Table:
        """Return the trees below `roots` in detail."""
        host = self.context.host
        limit_s = self.context.deadline.at_most(SURVEY_S if host.name == LOCAL else REMOTE_SURVEY_S)
        return await host_processes.read(roots, deadline_s=limit_s, host=host)

    async def read_facts(self, targets: Sequence[Target]) -> HostFacts:
        """Ask its kernel, devices and package folders; a host that told nothing of its processes is not asked more."""
        if self.lost is not None:
            return host_facts.unknown(self.table, self.lost)
        return await host_facts.read(targets, self.table, self.context)

    def bearable(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs; of a host that is lost such that only say so, as each would wait for its deadline."""
        why = self.lost
        if why is None:
            return list(jobs)
        return [msgspec.structs.replace(job, run=partial(_nothing, job.files, why)) for job in jobs]

    @property
    def lost(self) -> str | None:
        """Return why nothing can be read there, None where it can."""
        return self.table.problem if not self.table.processes else None


async def _nothing(names: tuple[str, ...], why: str) -> list[Taken]:
    return [Taken(name=name, status=Status.FAILED, error=why) for name in names]


def sites_of(deployment: Deployment, hosts: Hosts, context: Context) -> tuple[Site, ...]:
    """Return a site for every host that an instance names."""
    names = dict.fromkeys(instance.host for instance in deployment.instances)
    slots = asyncio.Semaphore
    return tuple(
        Site(name, msgspec.structs.replace(context, host=hosts.of(name), attach_slots=slots(ATTACHED_AT_ONCE)))
        for name in names
    )
