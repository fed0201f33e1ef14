"""A unified loop over the real model, sampling and step thread, without the API process."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from engine.clock import SystemClock
from engine.config import Role, Schedule
from engine.kvcache.pages import PageLedger
from engine.kvcache.prefix_cache import PrefixCache
from engine.messages import Delta, Failure, Generate, ToScheduler
from engine.observe.journal import Journal
from engine.scheduler.book import Book
from engine.scheduler.executor import StepThread
from engine.scheduler.loop import Loop
from engine.scheduler.planner import Planner
from engine.scheduler.progress import Progress
from engine.scheduler.rank import load_rank
from engine.scheduler.rank_links import OtherRanks
from engine.scheduler.roles import Unified
from tests.engine.scheduler.building import config

LIMIT_S = 120.0


class PolledInbox:
    """A fake of the message sockets that waits for the step thread as the real one does."""

    def __init__(self, descriptor: int) -> None:
        self.messages: list[ToScheduler] = []
        self.answers: list[Delta | Failure] = []
        self._descriptor = descriptor

    def receive(self, patience_ms: int) -> list[ToScheduler]:
        if not self.messages:
            select.select([self._descriptor], [], [], patience_ms / 1000)
        messages, self.messages = self.messages, []
        return messages

    def answer(self, items: list[Delta | Failure]) -> None:
        self.answers += items


class RealLoop:
    """The loop of one schedule; `run` gives it requests, and what to do after so many answers."""

    def __init__(self, model: Path, schedule: Schedule, **changes: object) -> None:
        self.config = config(Role.UNIFIED, model=str(model), dtype="float64", schedule=schedule, **changes)
        clock = SystemClock()
        rank = load_rank(self.config, 0, "", clock, OtherRanks(zmq.Context.instance(), "", self.config.tp))
        self.steps = StepThread(rank.compute_plan, threads=1)
        self.inbox = PolledInbox(self.steps.fileno())
        pages = PageLedger(self.config.pages)
        cache = PrefixCache(self.config.page_size, pages)
        self.book = Book(clock, self.config.page_size, pages, cache, Journal(clock))
        self.planner = Planner(self.config, self.book)
        self.loop = Loop(
            self.config,
            clock,
            self.inbox,  # type: ignore[arg-type]
            self.book,
            self.planner,
            Unified(self.book),
            self.steps,
            Progress(),
            rank.checkpoint.config.eos_ids,
        )

    def run(self, requests: list[Generate], then: dict[int, ToScheduler]) -> dict[str, list[int]]:
        """Send all requests, later each message of `then` after so many answers; return everybody's tokens."""
        self.inbox.messages += requests
        later = sorted(then.items(), key=lambda item: item[0])
        ends_at = time.monotonic() + LIMIT_S
        while self.inbox.messages or len(self.book.queues):
            assert time.monotonic() < ends_at, self.book.queues.lengths()
            self.loop.turn()
            while later and len(self.inbox.answers) >= later[0][0]:
                self.inbox.messages.append(later.pop(0)[1])
        tokens: dict[str, list[int]] = {request.rid: [] for request in requests}
        for item in self.inbox.answers:
            if isinstance(item, Delta):
                tokens[item.rid] += item.token_ids
        return tokens


@contextmanager
def real_loop(model: Path, schedule: Schedule, **changes: object) -> Iterator[RealLoop]:
    """Run a loop with its step thread."""
    made = RealLoop(model, schedule, **changes)
    made.steps.start()
    try:
        yield made
    finally:
        made.steps.close()
