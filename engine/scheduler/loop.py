"""The loop: receive, take events, expire, plan, compute, answer. One thread; owner of all sequences and pages."""

from __future__ import annotations

from engine.clock import Clock
from engine.config import EngineConfig
from engine.messages import Abort, Drain, FinishReason, Generate, ToScheduler
from engine.model.grammar import GrammarCompiler
from engine.model.sampling import Sampled, SamplingState, finish_of
from engine.observe.records import RoomRecord, Stage
from engine.scheduler import failures
from engine.scheduler.book import Book
from engine.scheduler.failures import Ending
from engine.scheduler.inbox import Inbox
from engine.scheduler.plan import Planner, StepPlan, Work
from engine.scheduler.progress import Progress
from engine.scheduler.roles import RoleBehaviour
from engine.scheduler.runner import Runner, StepResult
from engine.scheduler.sequence import Phase, Sequence

IDLE_WAIT_MS = 100
"""Messages and transfer events end the wait; deadlines are looked at that often."""


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
        runner: Runner,
        progress: Progress,
        eos_ids: tuple[int, ...],
        grammars: GrammarCompiler,
    ) -> None:
        self._config = config
        self._clock = clock
        self._inbox = inbox
        self._book = book
        self._planner = planner
        self._role = role
        self._runner = runner
        self._progress = progress
        self._eos_ids = eos_ids
        self._grammars = grammars
        self._arrivals = 0
        self._is_busy = False
        self._drain_until: float | None = None

    def run(self) -> None:
        """Turn until drained. Only a bug raises; the process then ends and says so."""
        while not self._drained():
            self.turn()

    def turn(self) -> None:
        """Go round once."""
        for message in self._inbox.receive(0 if self._is_busy else IDLE_WAIT_MS):
            self._handle(message)
        self._role.take_events()
        self._expire()
        plan = self._planner.next_step(self._clock.monotonic())
        self._is_busy = plan is not None
        if plan is not None:
            self._execute(plan)
        self._inbox.answer(self._book.take_answers())
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
        self._progress.turn(self._clock.monotonic())
        if self._role.transfer is not None:
            self._role.transfer.progress(self._progress.turns, self._progress.longest_step_s)

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
            sampling=self._sampling_state(request),
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

    def _sampling_state(self, request: Generate) -> SamplingState:
        text = request.sampling.grammar
        grammar = None if text is None else self._grammars.start(text)
        return SamplingState(request.sampling, request.prompt_ids, self._eos_ids, grammar)

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

    def _execute(self, plan: StepPlan) -> None:
        for work in plan.chunks:
            self._book.journal.mark(work.sequence.record, Stage.COMPUTING)
        result = self._compute(plan)
        for work in plan.works:
            work.sequence.computed += work.length
            work.sequence.prompt_logprobs += result.prompt_logprobs.get(work.sequence.rid, [])
        for work in plan.decodes:
            self._decoded(work, result)
        for work in plan.chunks:
            self._prompt_chunk_done(work, result)

    def _compute(self, plan: StepPlan) -> StepResult:
        flight, sequences = self._book.journal.flight, len(plan.works)
        if flight is not None:
            flight.step_begins(plan.number, sequences, sum(work.length for work in plan.works))
        started = self._clock.monotonic()
        result = self._runner.step(plan)
        took_s = self._clock.monotonic() - started
        self._progress.step(took_s)
        if flight is not None:
            flight.step_ends(plan.number, sequences, took_s)
        return result

    def _decoded(self, work: Work, result: StepResult) -> None:
        sampled = result.sampled.get(work.sequence.rid)
        if sampled is None or self._is_broken(work.sequence, sampled):
            return
        finish = self._record(work.sequence, sampled)
        self._book.tell(work.sequence, sampled, finish)
        if finish is not None:
            self._book.release(work.sequence, finish)

    def _prompt_chunk_done(self, work: Work, result: StepResult) -> None:
        self._book.prompt_tokens += work.length
        if work.samples:
            self._book.journal.mark(work.sequence.record, Stage.COMPUTED)
        sampled = result.sampled.get(work.sequence.rid)
        if sampled is not None and self._is_broken(work.sequence, sampled):
            return
        self._book.share(work.sequence)
        finish = None if sampled is None else self._record(work.sequence, sampled)
        self._role.chunk_done(work, sampled, finish)

    def _is_broken(self, sequence: Sequence, sampled: Sampled) -> bool:
        """End a sequence whose logits are no numbers, or whose grammar failed; its neighbours in the step go on."""
        grammar = sequence.sampling.grammar
        if sampled.is_finite and grammar is not None and grammar.problem is not None:
            self._role.end(sequence, failures.broken_grammar(grammar.problem))
            return True
        if sampled.is_finite:
            return False
        # Pages with NaN may have been shared already; they spoil whoever attends to them.
        sequence.computed = 0
        self._book.cache.drop()
        self._role.end(sequence, failures.BROKEN_LOGITS)
        return True

    def _record(self, sequence: Sequence, sampled: Sampled) -> FinishReason | None:
        """Append a token to its sequence and say whether it ends it."""
        sequence.tokens.append(sampled.token_id)
        sequence.sampling.record(sampled.token_id)
        return finish_of(sampled.token_id, sequence.sampling)
