"""Answers questions about this instance from live state, in a thread of its own: also while the loop hangs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from engine.clock import Clock
from engine.config import EngineConfig
from engine.messages import Observe
from engine.observe.records import HealthReport, LoadReport, PeerTransfer, RoomList, Sample
from engine.observe.threads import Supervisor
from engine.scheduler.book import Book
from engine.scheduler.planner import Planner
from engine.scheduler.progress import Progress
from engine.scheduler.sequence import Phase
from engine.transfer.interface import Transfer

if TYPE_CHECKING:
    from engine.failpoints import Failpoints

POLL_MS = 200
LOOP_AGE_LIMIT_S = 10.0
"""Older than that, or than ten times the longest step, the loop counts as stuck in `/health`."""


class Observer:
    """Reads what the loop and the transfer threads write; changes nothing."""

    def __init__(
        self,
        config: EngineConfig,
        clock: Clock,
        book: Book,
        planner: Planner,
        progress: Progress,
        supervisor: Supervisor,
        transfer: Transfer | None,
        failpoints: Failpoints | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._book = book
        self._planner = planner
        self._progress = progress
        self._supervisor = supervisor
        self._transfer = transfer
        self._failpoints = failpoints
        self._started_at = clock.wall()
        self._questions = {
            "metrics": self.samples,
            "rooms": lambda: self._rooms(live=True),
            "recent": lambda: self._rooms(live=False),
            "ledger": lambda: self._book.pages.ledger(),
            "loads": self.loads,
            "health": self.health,
            "transfer": self.peer_transfers,
        }

    def serve(self, context: zmq.Context[zmq.Socket[bytes]], run_dir: str, stopping: threading.Event) -> None:
        """Answer `Observe` questions until stopping; the body of a supervised thread."""
        socket = context.socket(zmq.REP)
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(f"ipc://{run_dir}/observe")
        try:
            while not stopping.is_set():
                if socket.poll(POLL_MS):
                    question = msgspec.msgpack.decode(socket.recv(), type=Observe)
                    socket.send(msgspec.msgpack.encode(self.answer(question)))
        finally:
            socket.close()

    def answer(self, question: Observe) -> Any:
        """Return the record that a question asks for; None when there is none such."""
        if self._failpoints is not None and question.what in ("failpoints", "arm", "disarm"):
            if question.argument:
                self._failpoints.switch(question.argument, question.what == "arm")
            return self._failpoints.states()
        answer = self._questions.get(question.what)
        return None if answer is None else answer()

    def health(self) -> HealthReport:
        """Say whether this instance can do its part."""
        age = self._clock.monotonic() - self._progress.last_turn
        problems = [f"thread {name} is down" for name in self._supervisor.down()]
        if age > max(LOOP_AGE_LIMIT_S, 10 * self._progress.longest_turn_s):
            problems.append(f"the loop has not moved for {age:.0f} s")
        if self._transfer is not None:
            problems += self._transfer.problems()
        return HealthReport(
            ok=not problems,
            problems=problems,
            loop_age_s=round(age, 3),
            threads={state.name: state.alive for state in self._supervisor.states()},
            refused_peers={} if self._transfer is None else self._transfer.refused_peers(),
        )

    def peer_transfers(self) -> list[PeerTransfer]:
        """Return what the last canary READ with each peer found."""
        return [] if self._transfer is None else self._transfer.peer_transfers()

    def loads(self) -> LoadReport:
        """Return the queues in numbers and ages."""
        ledger = self._book.pages.ledger()
        lengths = self._book.queues.lengths()
        running = lengths[Phase.PROMPT] + lengths[Phase.DECODING]
        return LoadReport(
            running=running,
            waiting=sum(lengths.values()) - running,
            queues=lengths,
            oldest_age_s={
                phase: round(age, 3) for phase, age in self._book.queues.oldest_ages(self._clock.monotonic()).items()
            },
            kv_tokens_used=(ledger.total - ledger.free - ledger.cached) * self._config.page_size,
            kv_tokens_total=ledger.total * self._config.page_size,
        )

    def samples(self) -> list[Sample]:
        """Return every metric sample of the scheduler process."""
        return self._state_samples() + self._work_samples() + self._transfer_samples()

    def _state_samples(self) -> list[Sample]:
        loads = self.loads()
        ledger = msgspec.structs.asdict(self._book.pages.ledger())
        identity = {
            "instance": self._config.instance,
            "incarnation": self._config.incarnation,
            "role": str(self._config.role),
        }
        samples = [
            Sample("pdengine_info", 1, identity),
            Sample("pdengine_start_time_seconds", self._started_at),
            Sample("pdengine_pages", ledger.pop("total"), {"owner": "total"}),
        ]
        ledger.pop("balanced")
        samples += [Sample("pdengine_pages", count, {"owner": owner}) for owner, count in ledger.items()]
        for phase, length in loads.queues.items():
            samples.append(Sample("pdengine_queue_length", length, {"queue": phase}))
            age = loads.oldest_age_s[phase]
            samples.append(Sample("pdengine_queue_oldest_age_seconds", age, {"queue": phase}))
        for state in self._supervisor.states():
            samples.append(Sample("pdengine_thread_alive", int(state.alive), {"thread": state.name}))
            samples.append(Sample("pdengine_thread_restarts", state.restarts, {"thread": state.name}))
        return samples

    def _work_samples(self) -> list[Sample]:
        age = self._clock.monotonic() - self._progress.last_turn
        samples = [
            Sample("pdengine_last_progress_timestamp_seconds", self._clock.wall() - age),
            Sample("pdengine_steps", self._progress.steps),
            Sample("pdengine_step_seconds", self._progress.step_seconds),
            Sample("pdengine_longest_step_seconds", self._progress.longest_step_s),
            Sample("pdengine_prompt_tokens", self._book.prompt_tokens),
            Sample("pdengine_generated_tokens", self._book.generated_tokens),
            Sample("pdengine_retractions", self._planner.retractions),
            Sample("pdengine_prefix_cache_asked_tokens", self._book.cache.asked_tokens),
            Sample("pdengine_prefix_cache_hit_tokens", self._book.cache.hit_tokens),
            Sample("pdengine_prefix_cache_evicted_pages", self._book.cache.evicted_pages),
        ]
        if (recheck := self._book.recheck) is not None:
            for name, counts in (("rechecked", recheck.rechecked), ("changed", recheck.changed)):
                samples += [Sample(f"pdengine_prompts_{name}", n, {"rank": str(r)}) for r, n in enumerate(counts)]
        results = dict(self._book.results)
        return samples + [Sample("pdengine_requests", n, {"result": result}) for result, n in results.items()]

    def _transfer_samples(self) -> list[Sample]:
        return [] if self._transfer is None else self._transfer.samples()

    def _rooms(self, live: bool) -> RoomList:
        journal = self._book.journal
        return RoomList(
            instance=self._config.instance,
            incarnation=self._config.incarnation,
            now=self._clock.wall(),
            rooms=journal.live() if live else journal.recent(),
        )
