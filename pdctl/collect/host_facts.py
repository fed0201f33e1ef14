"""What is read once for all instances of this host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from pdctl.collect import gpu, kernel, source
from pdctl.collect.context import Context
from pdctl.collect.host_processes import Table
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The host at the first sample."""

    table: Table
    kernel: Taken
    gpus: gpu.Gpus
    sources: source.Sources


async def read(targets: Sequence[Target], table: Table, context: Context) -> HostFacts:
    """Ask kernel, devices and package folders, all at once; each has its own deadline."""
    async with asyncio.TaskGroup() as group:
        kernel_log = group.create_task(kernel.take(context))
        gpus = group.create_task(gpu.read(context))
        sources = group.create_task(source.read(targets, context))
    return HostFacts(table=table, kernel=kernel_log.result(), gpus=gpus.result(), sources=sources.result())


def unknown(table: Table, why: str) -> HostFacts:
    """Return the facts of a host that cannot be read."""
    return HostFacts(
        table=table,
        kernel=Taken(name=kernel.NAME, status=Status.FAILED, error=why),
        gpus=gpu.Gpus(status=Status.FAILED, problem=why),
        sources=source.Sources(problem=why),
    )
