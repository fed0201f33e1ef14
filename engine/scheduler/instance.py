"""Puts one scheduler together: model, pool, transfer threads, observer, loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from engine.clock import SystemClock
from engine.config import EngineConfig, Role
from engine.kvcache.pages import PageLedger
from engine.kvcache.prefix_cache import PrefixCache
from engine.messages import Ready
from engine.model.config import ModelConfig
from engine.observe.journal import Journal
from engine.observe.threads import Supervisor
from engine.observe.watchdog import StuckClock, watch
from engine.scheduler.book import Book
from engine.scheduler.executor import StepThread
from engine.scheduler.inbox import Inbox
from engine.scheduler.loop import Loop
from engine.scheduler.observer import Observer
from engine.scheduler.planner import Planner
from engine.scheduler.progress import Progress
from engine.scheduler.rank import Rank, instance_ranks, load_rank
from engine.scheduler.rank_links import Context, OtherRanks
from engine.scheduler.recheck import PromptRecheck
from engine.scheduler.roles import Decode, Prefill, RoleBehaviour, Unified
from engine.transfer.interface import Reader, Source
from engine.transfer.protocol.contract import contract_of, pools_of

if TYPE_CHECKING:
    from engine.failpoints import Failpoints

log = logging.getLogger(__name__)


class Instance:
    """Loads on construction; `serve` blocks until drained."""

    def __init__(self, config: EngineConfig, context: Context, run_dir: str) -> None:
        self._clock = SystemClock()
        started = self._clock.monotonic()
        self._config = config
        self._context = context
        self._run_dir = run_dir
        self._others = OtherRanks(context, run_dir, config.tp)
        rank = load_rank(config, 0, run_dir, self._clock, self._others)
        checkpoint = rank.checkpoint
        self._ranks = instance_ranks(config, checkpoint.config, run_dir)
        pools = pools_of(rank.pool.layout, self._ranks.kv_heads)
        self._contract = contract_of(checkpoint.fingerprint(), config.checksums, pools)
        self._context_length = context_length(config, checkpoint.config)
        self._supervisor = Supervisor()
        self._progress = Progress(last_turn=self._clock.monotonic())
        ledger = PageLedger(config.pages)
        cache = PrefixCache(config.page_size, ledger, config.prefix_cache)
        self._book = Book(self._clock, config.page_size, ledger, cache, Journal(self._clock, rank.flight))
        planner = Planner(config, self._book)
        self._role = self._behaviour(rank, planner)
        self._inbox = Inbox(context, run_dir)
        self._stuck_clock = StuckClock(config.stuck_timeout_s)
        self._steps = StepThread(rank.compute_plan, config.threads)
        self._loop = Loop(
            config,
            self._clock,
            self._inbox,
            self._book,
            planner,
            self._role,
            self._steps,
            self._progress,
            checkpoint.config.eos_ids,
        )
        self._others.wait_loaded()
        self._observer = Observer(
            config,
            self._clock,
            self._book,
            planner,
            self._progress,
            self._supervisor,
            self._role.transfer,
            self._failpoints(planner) if config.enable_failpoints else None,
        )
        self._load_s = self._clock.monotonic() - started

    def drain(self) -> None:
        """Finish what is there, then return from `serve`; callable from a signal handler."""
        self._loop.drain()

    def serve(self) -> None:
        """Start the threads, tell the API process that we are ready, and run the loop."""
        transfer = self._role.transfer
        if transfer is not None:
            transfer.use_canary_page(self._book.pages.total)
            transfer.start()
            self._inbox.watch(transfer.wakeup_fd)
        stopping = self._supervisor.stopping
        self._steps.start()
        self._inbox.watch(self._steps.fileno())
        self._supervisor.start("observer", lambda: self._observer.serve(self._context, self._run_dir, stopping))
        clock, progress = self._stuck_clock, self._progress
        self._supervisor.start("watchdog", lambda: watch(stopping, lambda: progress.is_stuck(clock)))
        self._inbox.send(
            Ready(
                context_length=self._context_length,
                kv_tokens=self._config.pool_tokens,
                control_endpoint=self._role.transfer.control_endpoint if isinstance(self._role, Prefill) else None,
                contract=self._contract,
                load_s=round(self._load_s, 3),
            )
        )
        log.info("serving as %s after %.1f s", self._config.role, self._load_s)
        try:
            self._loop.run()
        finally:
            if self._steps.close():
                self._others.leave()
            if transfer is not None:
                transfer.stop()
            self._supervisor.stop()
            self._inbox.close()
            self._others.close()

    def _failpoints(self, planner: Planner) -> Failpoints:
        # Imported here: without the flag no line of it is in the process.
        from engine.failpoints import Failpoints, Parts

        parts = Parts(self._loop, self._book, planner, self._role, self._supervisor, self._stuck_clock, self._others)
        return Failpoints(self._config.role, parts)

    def _behaviour(self, rank: Rank, planner: Planner) -> RoleBehaviour:
        if self._config.role is Role.UNIFIED:
            return Unified(self._book)
        # Imported here: NIXL takes 0.2 s and 60 MB, and a unified instance has no use for it.
        from engine.transfer.decode.reader import DecodeReader
        from engine.transfer.prefill.source import PrefillSource

        arguments = (
            self._config, rank.pool, self._contract, self._clock, self._book.journal, self._supervisor, self._ranks,
        )  # fmt: skip
        if self._config.role is Role.PREFILL:
            source: Source = PrefillSource(*arguments)
            return Prefill(self._book, source)
        reader: Reader = DecodeReader(*arguments)
        if self._config.recheck_prompts:
            self._book.recheck = PromptRecheck(reader.sum_pages, self._config.page_size, self._config.tp)
        return Decode(self._book, reader, planner, self._config.max_running)


def context_length(config: EngineConfig, model: ModelConfig) -> int:
    """Return the longest prompt + answer: what the model, the operator and the pool allow."""
    limits = [model.context_length, config.pool_tokens]
    if config.max_context is not None:
        limits.append(config.max_context)
    return min(limits)
