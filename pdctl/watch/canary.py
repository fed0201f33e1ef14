"""A real request every so often, by the rules of `pdctl.probe`: one at a time, and never where it could do harm."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import msgspec

from pdctl.deployment.model import Deployment
from pdctl.diagnose.limits import LIMITS
from pdctl.errors import PdctlError
from pdctl.probe import ProbeReport, ProbeResult, Verdict, prove
from pdctl.watch.ways import Way, ways_of

PROMPT_TOKENS = 32
TIMEOUT_S = 60.0
OVERDUE_S = LIMITS.patience_s
"""A canary under way for so long is evidence already; on an engine that is slow it may still end well."""
RETRY_S = 30.0
"""Between two canaries of one way while something is suspicious: one more tells nothing new."""
CHANGED_S = 5.0
"""Where one passed and an instance on its way has changed since: what flickers must not be probed at every look."""
PROOF_TURNS = 2
"""For so many turns of all ways a passed canary is evidence; then it is too old to prove anything."""
BLAME_S = 45.0
"""For so long a failed one is: where it still fails, it was sent again meanwhile."""
CLOSE_S = 0.5

_OUTCOMES = {Verdict.PROVEN: "passed", Verdict.NOT_PROVEN: "failed", Verdict.UNKNOWN: "unknown"}
SKIPPED = "skipped"
OUTCOMES = (*_OUTCOMES.values(), SKIPPED)
"""Unknown: answered, but not proven. Skipped: none was sent."""

Say = Callable[[str], None]


class Prober(Protocol):
    """Sends requests and says what became of them, as `pdctl.probe.prove` does."""

    def __call__(
        self, deployment: Deployment, *, direct: bool, prompt_tokens: int, timeout_s: float
    ) -> ProbeReport: ...


class _Flight(msgspec.Struct, frozen=True):
    """A canary under way."""

    way: Way
    sent_at: float
    """By the clock that never jumps."""
    at: float
    """Unix time."""


class _Landed(msgspec.Struct, frozen=True):
    ended_at: float
    result: ProbeResult


class Canary:
    """Probes one way after the other, `every_s` apart; what is suspicious is probed at once, and again."""

    def __init__(
        self,
        deployment: Deployment,
        every_s: float,
        say: Say = lambda line: None,
        prober: Prober = prove,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        """How many ended how, by a word of `OUTCOMES`."""
        self._ways = ways_of(deployment)
        self._every_s = every_s
        self._say = say
        self._prober = prober
        self._clock = clock
        self._due_at = clock() + every_s
        self._turn = 0
        self._sent_at: dict[str, float] = {}
        self._retry_at: dict[str, float] = {}
        self._landed: dict[str, _Landed] = {}
        self._told: dict[str, str] = {}
        self._flight: _Flight | None = None
        self._thread: threading.Thread | None = None

    @property
    def results(self) -> tuple[ProbeResult, ...]:
        """Return what is evidence now: the last result of each way, newest last, and one that is overdue."""
        now = self._clock()
        return self._with_overdue(now, (item for item in self._landed.values() if self._tells(item, now)))

    @property
    def last(self) -> tuple[ProbeResult, ...]:
        """Return the last result of each way: one that failed until another ended there, however long ago it was."""
        now = self._clock()
        is_last = (
            item
            for item in self._landed.values()
            if item.result.verdict is not Verdict.PROVEN or self._tells(item, now)
        )
        return self._with_overdue(now, is_last)

    def tick(self, *, is_suspicious: bool, suspects: Collection[str] = ()) -> None:
        """Send a canary if one is due and none is under way. Returns at once: a thread waits for the answer."""
        if self._flight is not None:
            return
        way = self._way_under_suspicion(suspects) if is_suspicious else self._way_in_turn()
        if way is None:
            return
        self._flight = _Flight(way, self._clock(), time.time())
        self._sent_at[way.via] = self._flight.sent_at
        self._retry_at[way.via] = self._flight.sent_at + RETRY_S
        self._thread = threading.Thread(target=self._send, args=(way,), name="canary", daemon=True)
        self._thread.start()

    def forget(self, names: Collection[str]) -> None:
        """Drop what failed past these instances, which have changed: their ways may be probed at once.

        What passed before the change proves little of now: after `CHANGED_S` that way may be probed again too.
        """
        for way in self._ways:
            landed = self._landed.get(way.via)
            if not way.names & set(names) or way.via not in self._sent_at:
                continue
            if landed is not None and landed.result.verdict is not Verdict.PROVEN:
                del self._landed[way.via], self._retry_at[way.via]
            else:
                self._retry_at[way.via] = self._sent_at[way.via] + CHANGED_S

    def close(self) -> None:
        """Give a canary under way a moment to end; its legs outlive us otherwise, and do no harm."""
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _with_overdue(self, now: float, landed: Iterable[_Landed]) -> tuple[ProbeResult, ...]:
        late = self._overdue(now)
        results = (item.result for item in sorted(landed, key=lambda one: one.ended_at))
        return tuple(results) if late is None else (*(one for one in results if one.via != late.via), late)

    def _tells(self, item: _Landed, now: float) -> bool:
        proof_s = PROOF_TURNS * len(self._ways) * self._every_s
        return now - item.ended_at <= (proof_s if item.result.verdict is Verdict.PROVEN else BLAME_S)

    def _overdue(self, now: float) -> ProbeResult | None:
        flight = self._flight
        if flight is None or now - flight.sent_at < OVERDUE_S:
            return None
        waited_s = now - flight.sent_at
        return ProbeResult(
            id="",
            via=flight.way.via,
            at=flight.at,
            verdict=Verdict.NOT_PROVEN,
            why=f"no answer yet after {waited_s:.0f} s",
            stage=None,
            took_ms=1000 * waited_s,
            timeout_ms=1000 * TIMEOUT_S,
            error="timeout",
        )

    def _way_under_suspicion(self, suspects: Collection[str]) -> Way | None:
        """Return a way past the suspects, else the one in turn, if it surely does not come past them.

        Otherwise its prompt would make prefill move, and so hide for a while that decode stands.
        """
        way = self._suspicious_way(suspects)
        if way is not None:
            return way
        way = self._way_in_turn()
        return None if way is None or _may_pass(way, suspects) else way

    def _suspicious_way(self, suspects: Collection[str]) -> Way | None:
        """Return a way that may tell more: of those past the suspects, the one not asked for longest."""
        failed = {via for via, item in self._landed.items() if item.result.verdict is not Verdict.PROVEN}
        now = self._clock()
        ways = [
            way
            for way in self._ways
            if (not suspects or way.names & set(suspects) or way.via in failed)
            and self._retry_at.get(way.via, now) <= now
        ]
        # Directly first: a router may answer for an engine that does not.
        return min(ways, key=lambda way: (not way.direct, self._sent_at.get(way.via, 0.0)), default=None)

    def _way_in_turn(self) -> Way | None:
        """Return the way whose time has come; its turn is over with that, sent or not."""
        if not self._ways or self._clock() < self._due_at:
            return None
        self._due_at = self._clock() + self._every_s
        way = self._ways[self._turn % len(self._ways)]
        self._turn += 1
        return way

    def _send(self, way: Way) -> None:
        try:
            report = self._prober(way.deployment, direct=way.direct, prompt_tokens=PROMPT_TOKENS, timeout_s=TIMEOUT_S)
            result = report.results[-1]
            self._told.pop(way.via, None)
            self.outcomes[_OUTCOMES[result.verdict]] += 1
            self._landed[way.via] = _Landed(self._clock(), result)
        except PdctlError as error:
            self.outcomes[SKIPPED] += 1
            if self._told.get(way.via) != error.message:
                self._say(f"canary {way.via}: not sent: {error.message}")
            self._told[way.via] = error.message
        finally:
            self._flight = None


def _may_pass(way: Way, suspects: Collection[str]) -> bool:
    """Return whether a request on this way may come past a suspect: a router chooses, a pair is what it is."""
    return not way.direct or not suspects or bool(way.names & set(suspects))
