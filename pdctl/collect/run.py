"""The jobs of one collection while they run: at once, within one deadline, and gone when it is over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from pdctl.collect import records
from pdctl.collect.concurrency import all_of
from pdctl.collect.context import Context, guarded
from pdctl.collect.incident import IncidentDirectory
from pdctl.collect.plan import Job
from pdctl.collect.records import Status, Taken

INSTANCES_AT_ONCE = 96
"""Each asks all its endpoints at once; a hung one holds its place for one timeout."""
GRACE_S = 0.25
OUT_OF_TIME = "the time for the whole collection was over before its turn: allow more with --timeout"

T = TypeVar("T")


class Run:
    """Runs jobs within one deadline and hands what they take to the directory.

    Nothing that it has begun outlives it: whoever leaves it early gives up, and awaits the end.
    """

    def __init__(self, context: Context, directory: IncidentDirectory) -> None:
        self.context = context
        self.deadline = context.deadline
        self._directory = directory
        self._slots = asyncio.Semaphore(INSTANCES_AT_ONCE)
        self._pending: set[tuple[str, str]] = set()
        self._begun: list[asyncio.Future[Any]] = []

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run something beside the jobs, which ends with them."""
        task = asyncio.ensure_future(work)
        self._begun.append(task)
        return task

    def start(self, jobs: Iterable[Job], *, is_local: bool = False) -> asyncio.Future[list[None]]:
        """Run jobs in the background. Local ones do not wait for places that hung endpoints hold."""
        by_target: dict[str, list[Job]] = {}
        for job in jobs:
            by_target.setdefault(job.target.name, []).append(job)
            self._pending |= {(job.target.name, name) for name in job.files}
        # Who let us wait longest before goes first: its time runs while the others answer.
        ordered = sorted(by_target, key=self._took_ms, reverse=True)
        return self.begin(all_of(self._instance(by_target[name], is_local) for name in ordered))

    async def do(self, jobs: Iterable[Job]) -> None:
        """Run local jobs to their end."""
        await self.start(jobs, is_local=True)

    async def all_done(self) -> None:
        """Wait for all that runs in the background. Raises what one of them raised."""
        await asyncio.gather(*self._begun)

    def give_up(self) -> None:
        """End what still runs and record what it would have taken."""
        for task in self._begun:
            task.cancel()
        for owner, name in sorted(self._pending):
            lost = Taken(name=name, status=Status.TIMEOUT, error="the collection was interrupted", at=records.now())
            self._directory.add(owner, [lost])

    async def ended(self) -> None:
        """Wait until nothing of it runs any more; after `give_up` children are being killed for half a second."""
        if self._begun:
            await asyncio.wait(self._begun)

    def _took_ms(self, name: str) -> float:
        return max((item.took_ms or 0.0 for item in self._directory.taken[name].values()), default=0.0)

    async def _instance(self, jobs: Sequence[Job], is_local: bool) -> None:
        async with contextlib.nullcontext() if is_local else self._slots:
            await all_of(self._job(job) for job in jobs)

    async def _job(self, job: Job) -> None:
        limit_s = self.deadline.at_most(job.limit_s)
        if limit_s > 0:
            # The collector ends by itself first, and then keeps what it has.
            taken = await guarded(job.target, job.files, limit_s + GRACE_S, job.run)
        else:
            taken = [Taken(name=name, status=Status.TIMEOUT, error=OUT_OF_TIME, at=records.now()) for name in job.files]
        self._directory.add(job.target.name, taken)
        self._pending -= {(job.target.name, name) for name in job.files}
