"""How an instance lives and ends: servers and scheduler ranks side by side.

    loading ──Ready──> serving ──SIGTERM | POST /drain──> draining ──rank 0 exits 0──> exit 0
       │                  │                                  │
       └──────────────────┴────── any rank dies ─────────────┴──> streams get an error event, exit 1

A rank that exits with 2 before Ready had a bad model or setting, and has said which: exit 2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

from engine.api.service import Service
from engine.observe.service_manager import READY, STOPPING, ServiceManager
from engine.rank_processes import BAD_START, RankProcesses

log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""How long open answers get to write their last event after the scheduler is gone."""
KEEP_ALIVE_S = 120
"""Longer than the 90 s of the router's pool: it must never send on a connection just closed here."""


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to `Instance`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install nothing."""
        yield


class Instance:
    """Runs servers and scheduler side by side, and decides how the process ends."""

    def __init__(
        self,
        service: Service,
        ranks: RankProcesses,
        apps: Sequence[tuple[ASGIApp, socket.socket]],
    ) -> None:
        self._service = service
        self._ranks = ranks
        self._servers = [(QuietServer(_server_config(app)), listener) for app, listener in apps]
        self._stop_now = asyncio.Event()
        self._manager = ServiceManager()

    async def run(self) -> int:
        """Serve until a rank has exited; return the exit code of the instance."""
        self._listen_to_signals()
        tasks = [asyncio.create_task(server.serve([listener])) for server, listener in self._servers]
        tasks.append(asyncio.create_task(self._service.client.receive()))
        announce = asyncio.create_task(self._announce())
        try:
            return await self._until_over(tasks)
        finally:
            announce.cancel()
            await self._stop_servers(tasks)

    async def _until_over(self, tasks: Sequence[asyncio.Task[None]]) -> int:
        """Wait for the first thing that ends this instance."""
        over = asyncio.create_task(self._ranks.wait())
        drain = asyncio.create_task(self._service.drain_asked.wait())
        await asyncio.wait({over, drain, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                return await self._fail(f"a part of the API process ended: {task.exception()!r}")
        if over.done():
            return await self._rank_died(over.result() or "rank 0 left, though nobody had asked it to")
        return await self._leave(over)

    async def _leave(self, over: asyncio.Task[str | None]) -> int:
        """Let the scheduler finish within the drain timeout. Exit code 0, unless a rank fails."""
        timeout_s = self._service.config.drain_timeout_s
        self._manager.tell(STOPPING)
        log.info("draining: %d sequences in flight, up to %g s", self._service.client.in_flight, timeout_s)
        if not self._service.client.ready.done():
            return 0  # Nothing was served yet.
        self._service.client.drain()
        stop_now = asyncio.create_task(self._stop_now.wait())
        await asyncio.wait({over, stop_now}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        stop_now.cancel()
        if not over.done():
            left = self._service.client.in_flight
            log.warning("drain ended with %d sequences in flight", left)
            await self._end_answers("drain_timeout", "this instance left before the request was done")
            return 0
        if (reason := over.result()) is not None:
            return await self._rank_died(reason)
        await self._flushed()
        await self._end_answers("drained", "the scheduler left before the request was done")
        return 0

    async def _rank_died(self, reason: str) -> int:
        if self._ranks.had_bad_start and not self._service.client.ready.done():
            return BAD_START  # It has said why.
        return await self._fail(reason)

    async def _fail(self, reason: str) -> int:
        log.error("%s; this instance ends", reason)
        self._service.failure = reason
        await self._end_answers("scheduler_died", reason)
        return 1

    async def _end_answers(self, code: str, message: str) -> None:
        self._service.client.fail_all(code, message)
        await self._flushed()

    async def _flushed(self) -> None:
        """Wait until open answers have been written, for a bounded time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._service.meters.until_idle()

    async def _stop_servers(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for server, _ in self._servers:
            server.should_exit = True
            server.force_exit = True
        await asyncio.wait(tasks[: len(self._servers)], timeout=FLUSH_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _announce(self) -> None:
        ready = await asyncio.shield(self._service.client.ready)
        config = self._service.config
        log.info(
            "%s %s serves %s on http://%s:%d after %.1f s of loading",
            config.role, config.instance, config.served_name, config.host, config.port, ready.load_s,
        )  # fmt: skip
        self._manager.tell(READY)
        await self._manager.keep_telling()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        """Drain; at the second signal stop at once."""
        if self._service.drain_asked.is_set():
            self._stop_now.set()
        self._service.drain_asked.set()


def _server_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http="httptools",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
