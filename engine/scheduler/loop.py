"""The loop: receive, take events, expire, take results, plan, answer. One thread; owner of all sequences and pages.

Steps are computed elsewhere (`engine.scheduler.executor`). With `--schedule normal` one step is handed out at a time.
With `overlap` there are two: while step n runs, n + 1 is planned and waits, and when n ends, n + 1 begins at once,
beside which the loop works on n's result and plans n + 2. So what comes in during step n (an abort, an event of the
transfer, a token that ends its sequence) shows in plan n + 2. Behind a long step nothing is handed out: who comes while
it runs should not wait for two of them, and planning is short beside it.
"""

from __future__ import annotations

from collections import deque

from engine.clock import Clock
from engine.config import EngineConfig, Schedule
from engine.messages import Abort, Drain, Generate, ToScheduler
from engine.model.end_rule import EndRule
from engine.observe.records import RoomRecord, Stage
from engine.scheduler import failures
from engine.scheduler.book import Book
from engine.scheduler.executor import Executor
from engine.scheduler.failures import Ending
from engine.scheduler.inbox import Inbox
from engine.scheduler.planner import Planner
from engine.scheduler.progress import Progress
from engine.scheduler.results import Results
from engine.scheduler.roles import RoleBehaviour
from engine.scheduler.sequence import Phase, Sequence
from engine.scheduler.step import Step

WAIT_MS = 100
"""Messages, transfer events and results end the wait; deadlines are looked at that often."""
STEPS_AT_ONCE = {Schedule.NORMAL: 1, Schedule.OVERLAP: 2}
"""How many steps are handed out whose results are not known."""
LONG_STEP_TOKENS = 64
"""A tenth of a second of a small model on one core; planning takes a hundredth of that."""


class Loop:
    """Runs until told to stop, or until a drain is over."""

    def __init__(
        self,
        config: EngineConfig,
        clock: Clock,
        inbox: Inbox,
        book: Book,
        planner: Planner,
        role: RoleBehaviour,
        executor: Executor,
        progress: Progress,
        eos_ids: tuple[int, ...],
    ) -> None:
        self._config = config
        self._clock = clock
        self._inbox = inbox
        self._book = book
        self._planner = planner
        self._role = role
        self._executor = executor
        self._progress = progress
        self._eos_ids = eos_ids
        self._results = Results(book, role)
        self._running: deque[Step] = deque()
        """Steps that are handed out, the oldest first."""
        self._arrivals = 0
        self._drain_until: float | None = None

    def run(self) -> None:
        """Turn until drained. Only a bug raises; the process then ends and says so."""
        while not self._drained():
            self.turn()

    def turn(self) -> None:
        """Go round once."""
        for message in self._inbox.receive(WAIT_MS):
            self._handle(message)
        self._role.take_events()
        self._expire()
        has_moved = self._take_results() or not self._running
        self._hand_out_steps()
        self._inbox.answer(self._book.take_answers())
        if has_moved:
            self._tick()

    def drain(self) -> None:
        """Take no new request, finish what is there, then return from `run`. Callable from a signal handler."""
        if self._drain_until is None:
            self._drain_until = self._clock.monotonic() + self._config.drain_timeout_s
            if self._role.transfer is not None:
                self._role.transfer.drain()

    def _drained(self) -> bool:
        if self._drain_until is None:
            return False
        return len(self._book.queues) == 0 or self._clock.monotonic() >= self._drain_until

    def _tick(self) -> None:
        """Show that the loop moves. One that turns while a step hangs does not: its stuck clock must run out."""
        self._progress.turn(self._clock.monotonic())
        if self._role.transfer is not None:
            self._role.transfer.progress(self._progress.turns, self._progress.longest_turn_s)

    def _handle(self, message: ToScheduler) -> None:
        match message:
            case Generate():
                self._admit(message)
            case Abort(rid, reason, satisfied):
                for sequence in self._book.queues.named(rid):
                    self._role.end(sequence, failures.aborted(reason, satisfied))
            case Drain():
                self.drain()

    def _admit(self, request: Generate) -> None:
        now = self._clock.monotonic()
        self._arrivals += 1
        sequence = Sequence(
            request=request,
            record=RoomRecord(
                request_id=request.request_id,
                rid=request.rid,
                room=None if request.room is None else request.room.room,
                role=self._config.role,
                state="queued",
                prompt_tokens=len(request.prompt_ids),
            ),
            ends=EndRule.of(request.sampling, self._eos_ids),
            token_limit=request.sampling.max_tokens,
            tokens=list(request.prompt_ids),
            arrival=self._arrivals,
            arrived_at=now,
            deadline=now + request.deadline_s - (self._clock.wall() - request.received_at),
            phase=Phase.WAITING,
            phase_since=now,
        )
        refusal = self._refusal()
        self._book.open(sequence)
        if refusal is None:
            self._role.admit(sequence)
        else:
            self._role.refuse(sequence, refusal)

    def _refusal(self) -> Ending | None:
        if self._drain_until is not None:
            return failures.DRAINING
        if len(self._book.queues) - len(self._book.queues.running()) >= self._config.max_queued:
            return failures.queue_full(self._config.max_queued)
        return None

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for sequence in self._book.queues.all():
            if now >= sequence.deadline:
                self._role.end(sequence, failures.past_deadline(sequence.request.deadline_s))

    def _take_results(self) -> bool:
        """Act on the results that are there; return whether there were any."""
        results = self._executor.take()
        for result in results:
            self._progress.step(result.seconds)
            self._results.take(self._running.popleft(), result)
        return bool(results)

    def _hand_out_steps(self) -> None:
        while self._may_hand_out():
            step = self._planner.next_step(self._clock.monotonic(), others_run=bool(self._running))
            if step is None:
                return
            for work in step.chunks:
                self._book.journal.mark(work.sequence.record, Stage.COMPUTING)
            self._running.append(step)
            self._executor.submit(step.hand_out(self._config.page_size, self._book.take_forgotten()))

    def _may_hand_out(self) -> bool:
        if len(self._running) >= STEPS_AT_ONCE[self._config.schedule]:
            return False
        return not self._running or self._running[-1].tokens <= LONG_STEP_TOKENS
