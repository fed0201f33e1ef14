"""What the scheduler tests are built from: requests, and fakes of the transfer threads and of the model."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.config import EngineConfig, Role, Schedule
from engine.kvcache.pages import PageLedger
from engine.kvcache.prefix_cache import PrefixCache
from engine.messages import Abort, Delta, Drain, Failure, Generate, RoomRef, SamplingParams, ToScheduler
from engine.model.sampling import Fault, Sampled
from engine.observe.journal import Journal
from engine.observe.records import RoomRecord, Sample
from engine.scheduler.book import Book
from engine.scheduler.loop import Loop
from engine.scheduler.planner import Planner
from engine.scheduler.progress import Progress
from engine.scheduler.roles import Decode, Prefill, Unified
from engine.scheduler.runner import StepResult
from engine.scheduler.step_plan import COMING, SequenceStep, StepPlan
from engine.transfer.interface import Event, FailReason, FirstToken, Landed
from tests.engine.clock import ManualClock

EOS = 2


def config(role: Role, **changes: object) -> EngineConfig:
    """Return a small configuration: pages of 4 tokens, chunks of 8."""
    values: dict[str, object] = {
        "role": role,
        "model": "none",
        "served_name": "tiny",
        "instance": f"{role}-0",
        "incarnation": "0" * 32,
        "port": 1,
        "page_size": 4,
        "kv_tokens": 64,
        "chunk_tokens": 8,
        "max_running": 4,
        "max_queued": 8,
        "schedule": Schedule.NORMAL,
    }
    return EngineConfig(**(values | changes))  # type: ignore[arg-type]


def generate(rid: str, prompt: int, max_tokens: int = 4, room: int | None = None, **changes: object) -> Generate:
    """Return a request with a prompt of that many tokens."""
    values: dict[str, object] = {
        "rid": rid,
        "request_id": f"request-{rid}",
        "prompt_ids": list(range(10, 10 + prompt)),
        "sampling": SamplingParams(max_tokens=max_tokens, temperature=0.0),
        "room": None if room is None else RoomRef("127.0.0.1", 8998, room),
        "received_at": 1_000_000.0,
        "deadline_s": 600.0,
    }
    return Generate(**(values | changes))  # type: ignore[arg-type]


class ScriptedInbox:
    """A fake of the message sockets: hands out what the test puts in, keeps what the loop answers."""

    def __init__(self) -> None:
        self.messages: list[ToScheduler] = []
        self.answers: list[Delta | Failure] = []

    def receive(self, patience_ms: int) -> list[ToScheduler]:
        messages, self.messages = self.messages, []
        return messages

    def answer(self, items: list[Delta | Failure]) -> None:
        self.answers += items

    def of(self, rid: str) -> list[Delta | Failure]:
        """Return what one sequence was told."""
        return [item for item in self.answers if item.rid == rid]


@dataclass
class CountingExecutor:
    """A fake of the ranks: the token after n tokens is 100 + n, so tokens show what was computed.

    Each page remembers the tokens that it was computed from; a step fails that attends to a page of other tokens.
    A step is computed as late as can be, when its result is taken: whoever gets its pages too early spoils it.
    """

    page_size: int
    results_wait: bool = False
    """`take` gives one result, of a step that was there before this turn; else all."""
    plans: list[StepPlan] = field(default_factory=list)
    memory: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """Page and slot -> all tokens up to this one."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """Sequences that no token is found for."""
    ends_at: dict[str, int] = field(default_factory=dict)
    """After so many tokens this sequence samples EOS."""
    begun: set[str] = field(default_factory=set)
    """Sequences whose sampling state is kept."""
    waiting: deque[StepPlan] = field(default_factory=deque)

    def submit(self, plan: StepPlan) -> None:
        self.plans.append(plan)
        self.waiting.append(plan)

    def take(self) -> list[StepResult]:
        count = min(1, len(self.waiting)) if self.results_wait else len(self.waiting)
        return [self._computed(self.waiting.popleft()) for _ in range(count)]

    def _computed(self, plan: StepPlan) -> StepResult:
        self.begun -= set(plan.ended)
        result = StepResult(plan.number)
        for step in plan.sequences:
            before = () if step.start == 0 else self._at(step.pages, step.start - 1)
            tokens = [*before, *(self._token(step.rid, step.start) if t == COMING else t for t in step.tokens)]
            self.write(tokens, step.pages, step.start, step.end)
            self.check(tokens, step.pages, step.end)
            if step.samples:
                self._begin(step)
                token = self._token(step.rid, step.end)
                result.sampled[step.rid] = Sampled(token, None, self.faults.get(step.rid))
        return result

    def _begin(self, step: SequenceStep) -> None:
        assert (step.sampling is None) == (step.rid in self.begun), "told once, before anything depends on it"
        self.begun.add(step.rid)

    def _token(self, rid: str, after: int) -> int:
        return EOS if self.ends_at.get(rid) == after else 100 + after

    def _at(self, pages: list[int], at: int) -> tuple[int, ...]:
        return self.memory[pages[at // self.page_size], at % self.page_size]

    def write(self, tokens: list[int], pages: list[int], start: int, end: int) -> None:
        """Compute the KV of some tokens of a sequence."""
        for at in range(start, end):
            self.memory[pages[at // self.page_size], at % self.page_size] = tuple(tokens[: at + 1])

    def check(self, tokens: list[int], pages: list[int], end: int) -> None:
        """Fail unless the pages hold the KV of these very tokens."""
        for at in range(end):
            assert self._at(pages, at) == tuple(tokens[: at + 1])


class ScriptedTransfer:
    """A fake of both transfer sides: notes the loop's calls, hands out the events the test puts in.

    What lands is read into the executor's pages, but for the cached prefix.
    """

    control_endpoint = "tcp://127.0.0.1:1"
    wakeup_fd = -1

    def __init__(self, executor: CountingExecutor) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.events: list[Event] = []
        self._executor = executor
        self._prompts: dict[str, list[int]] = {}
        self._granted: dict[str, tuple[list[int], int]] = {}

    def poll(self) -> list[Event]:
        events, self.events = self.events, []
        for event in events:
            if isinstance(event, Landed) and event.first.finish is None:
                prompt, (pages, prefix) = self._prompts[event.rid], self._granted[event.rid]
                self._executor.write(prompt, pages, prefix, len(prompt))
        return events

    def fail(self, rid: str, reason: FailReason, detail: str) -> None:
        self.calls.append(("fail", rid, reason))

    def announce(self, rid: str, room: int, prompt_ids: list[int], record: RoomRecord) -> None:
        self.calls.append(("announce", rid, room))

    def ready(self, rid: str, first_page: int, pages: list[int], first: FirstToken | None) -> None:
        self.calls.append(("ready", rid, first_page, len(pages), None if first is None else first.token_id))

    def open(
        self, rid: str, room: int, bootstrap: str, prompt_ids: list[int], prefix_tokens: int, record: RoomRecord
    ) -> None:
        self._prompts[rid] = prompt_ids
        self.calls.append(("open", rid, room, bootstrap, prefix_tokens))

    def grant(self, rid: str, pages: list[int], prefix_tokens: int | None = None) -> None:
        self._granted[rid] = (list(pages), prefix_tokens or 0)
        self.calls.append(("grant", rid, len(pages), prefix_tokens))

    def refuse(self, room: int, bootstrap: str, detail: str) -> None:
        self.calls.append(("refuse", room, bootstrap))

    def progress(self, loop_tick: int, longest_step_s: float) -> None: ...

    def drain(self) -> None:
        self.calls.append(("drain",))

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def samples(self) -> list[Sample]:
        return []

    def problems(self) -> list[str]:
        return []

    def refused_peers(self) -> dict[str, str]:
        return {}


class Rig:
    """A loop of one role with fakes around it; `turn` lets it go round."""

    def __init__(self, role: Role, **changes: object) -> None:
        self.config = config(role, **changes)
        self.clock = ManualClock()
        self.inbox = ScriptedInbox()
        self.executor = CountingExecutor(self.config.page_size, self.config.schedule is Schedule.OVERLAP)
        self.transfer = ScriptedTransfer(self.executor)
        self.pages = PageLedger(self.config.pages)
        self.cache = PrefixCache(self.config.page_size, self.pages, self.config.prefix_cache)
        self.book = Book(self.clock, self.config.page_size, self.pages, self.cache, Journal(self.clock))
        self.progress = Progress()
        self.planner = Planner(self.config, self.book)
        behaviour = {
            Role.UNIFIED: lambda: Unified(self.book),
            Role.PREFILL: lambda: Prefill(self.book, self.transfer),
            Role.DECODE: lambda: Decode(self.book, self.transfer, self.planner, self.config.max_running),
        }[role]()
        self.loop = Loop(
            self.config,
            self.clock,
            self.inbox,  # type: ignore[arg-type]
            self.book,
            self.planner,
            behaviour,
            self.executor,
            self.progress,
            (EOS,),
        )

    def send(self, *messages: Generate | Abort | Drain) -> None:
        """Give messages to the loop and let it turn once."""
        self.inbox.messages += messages
        self.turn()

    def happen(self, *events: Event) -> None:
        """Give events of the transfer threads to the loop and let it turn once."""
        self.transfer.events += events
        self.turn()

    def turn(self, times: int = 1) -> None:
        """Let the loop go round."""
        for _ in range(times):
            self.loop.turn()

    def turn_until_idle(self, most: int = 500) -> None:
        """Let the loop go round until nothing is computed any more."""
        for _ in range(most):
            before = len(self.executor.plans)
            self.loop.turn()
            if len(self.executor.plans) == before and not self.executor.waiting:
                return
        raise AssertionError(f"still computing after {most} turns")

    def chunks(self, step: int | None = None) -> list[tuple[str, int, int]]:
        """Return (rid, start, length) of each prompt chunk that was handed out, or of those of one step (from 0)."""
        plans = self.executor.plans if step is None else [self.executor.plans[step]]
        return [(one.rid, one.start, len(one.tokens)) for plan in plans for one in plan.sequences[plan.decodes :]]

    def decodes(self, step: int) -> list[str]:
        """Return who decodes in a step (from 0; -1: the last one)."""
        plan = self.executor.plans[step]
        return [one.rid for one in plan.sequences[: plan.decodes]]

    def tokens(self, rid: str) -> list[int]:
        """Return the tokens a sequence was told."""
        return [token for item in self.inbox.of(rid) if isinstance(item, Delta) for token in item.token_ids]

    def everything_is_free(self) -> bool:
        """No sequence, no page in use but by the cache."""
        ledger = self.pages.ledger()
        return len(self.book.queues) == 0 and ledger.free + ledger.cached == ledger.total
