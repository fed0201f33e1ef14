"""What became of a load: counts by outcome, times, content."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from pdctl.load.canaries import Checked, Content
from pdctl.load.reply import ON_PURPOSE, Outcome, Reply, markup_faults

EXAMPLES_KEPT = 5


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The tally at one moment. Times in seconds; None where nothing was measured."""

    elapsed_s: float
    in_flight: int
    requests: int
    """That have ended."""
    outcomes: dict[str, int]
    tokens: int
    tokens_per_s: float
    """Of all streams together, over the whole run."""
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    took_p50_s: float | None
    canaries: dict[str, int]
    markup_faults: int
    answers_with_calls: int
    examples: tuple[str, ...]
    """Of what went wrong, the first of each kind."""

    @property
    def failed(self) -> int:
        """Return the requests that we did not end ourselves and that did not succeed."""
        fine = {str(Outcome.OK), *map(str, ON_PURPOSE)}
        return sum(count for name, count in self.outcomes.items() if name not in fine)

    @property
    def wrong(self) -> int:
        """Return the answers whose content is wrong."""
        return self.canaries.get(Content.WRONG, 0) + self.markup_faults


class Tally:
    """Counts ends; owned by one event loop."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began_at = now()
        self._outcomes: Counter[str] = Counter()
        self._canaries: Counter[str] = Counter()
        self._ttfts: deque[float] = deque(maxlen=100_000)
        self._tooks: deque[float] = deque(maxlen=100_000)
        self._examples: dict[str, str] = {}
        self._tokens = 0
        self._markup_faults = 0
        self._with_calls = 0

    def add(self, reply: Reply) -> None:
        """Count an end."""
        self._outcomes[reply.outcome] += 1
        self._tokens += reply.tokens
        if reply.ttft_s is not None:
            self._ttfts.append(reply.ttft_s)
        if reply.problem:
            self._note(str(reply.outcome), reply.problem)
        if reply.outcome is not Outcome.OK:
            return
        self._tooks.append(reply.took_s)
        self._with_calls += bool(reply.calls)
        faults = markup_faults(reply.text, reply.calls)
        self._markup_faults += bool(faults)
        for fault in faults:
            self._note("tool-call markup", fault)

    def add_canary(self, checked: Checked) -> None:
        """Count the content of an answer."""
        self._canaries[checked.content] += 1
        if checked.content is not Content.RIGHT:
            self._note(f"content {checked.content}", checked.why)

    def figures(self, in_flight: int) -> Figures:
        """Return the state now."""
        elapsed_s = max(self._now() - self._began_at, 1e-9)
        return Figures(
            elapsed_s=elapsed_s,
            in_flight=in_flight,
            requests=self._outcomes.total(),
            outcomes=dict(self._outcomes),
            tokens=self._tokens,
            tokens_per_s=self._tokens / elapsed_s,
            ttft_p50_s=percentile(self._ttfts, 0.5),
            ttft_p95_s=percentile(self._ttfts, 0.95),
            took_p50_s=percentile(self._tooks, 0.5),
            canaries=dict(self._canaries),
            markup_faults=self._markup_faults,
            answers_with_calls=self._with_calls,
            examples=tuple(f"{kind}: {text}" for kind, text in self._examples.items()),
        )

    def _note(self, kind: str, text: str) -> None:
        if len(self._examples) < EXAMPLES_KEPT:
            self._examples.setdefault(kind, text)


def percentile(values: Sequence[float] | deque[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of all values do not exceed; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
