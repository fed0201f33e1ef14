"""May it be done? A pure table over verdict, cause, flags and what the ledger remembers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from pdctl.diagnose.verdict import Verdict
from pdctl.recover.ledger import Outcome, Recovery, Step

SAME_CAUSE_MOST = 2
"""Recoveries of one fingerprint in a row that helped nobody: a third by itself would not either."""
BUDGET = 5
BUDGET_WINDOW_S = 3600.0
"""More recoveries than this in an hour are a fault of their own, and a person should look."""
PROGRESS_S = 600.0
"""The same fingerprint again within this time: the recovery before was no progress, whatever its probes said."""


class Ruling(StrEnum):
    GO = "go"
    ASK = "ask"
    """A person on a terminal decides."""
    REFUSE = "refuse"
    """Exit 5."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator asked for."""

    is_planned: bool = False
    """`pdctl restart`: no wedge is needed, but a reason is."""
    yes: bool = False
    force: bool = False
    reason: str | None = None
    is_terminal: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates look at."""

    verdict: Verdict | None = None
    """None: not diagnosed (a planned restart)."""
    has_restart_cause: bool = False
    """A firm cause whose action is a restart."""
    last_healthy: tuple[str, ...] = ()
    """Targets that passed a direct probe in this run, with no healthy one of their role outside the set."""
    breaker: str | None = None
    """Why automatic retries have stopped, if they have."""


class Decision(msgspec.Struct, frozen=True):
    ruling: Ruling
    why: str
    hint: str | None = None


_FORCE = "--force --reason 'WHY'"
_SERVES = (Verdict.HEALTHY, Verdict.NOT_A_WEDGE)


def decide(wish: Wish, facts: Facts) -> Decision:
    """Return the first rule that fits; nothing here asks, reads or writes."""
    is_forced = wish.force and bool(wish.reason)
    if wish.force and not wish.reason:
        return Decision(Ruling.REFUSE, "--force needs a reason, for those who read the history", _FORCE)
    if wish.is_planned and not wish.reason:
        return Decision(Ruling.REFUSE, "a planned restart needs a reason", "--reason 'WHY'")
    if is_forced:
        return _asked_unless_yes(wish, f"forced: {wish.reason}")
    if facts.last_healthy:
        names = ", ".join(facts.last_healthy)
        return Decision(Ruling.REFUSE, f"{names} just served a request, and no other could instead", _FORCE)
    if facts.verdict in _SERVES and not wish.is_planned:
        return Decision(Ruling.REFUSE, f"the verdict is {facts.verdict}: a restart would only cost requests", _FORCE)
    if facts.breaker and wish.yes:
        return Decision(Ruling.REFUSE, facts.breaker, f"look at `pdctl history`; {_FORCE}")
    if wish.is_planned or facts.verdict is Verdict.WEDGED or facts.has_restart_cause:
        return _asked_unless_yes(wish, wish.reason or f"the verdict is {facts.verdict}")
    why = f"the verdict is {facts.verdict}, and no established cause calls for a restart"
    if wish.yes and not wish.reason:
        return Decision(Ruling.REFUSE, why, "--yes --reason 'WHY'")
    return _asked_unless_yes(wish, why)


def breaker(history: Sequence[Recovery], fingerprint: str | None, now: float) -> str | None:
    """Return why nothing should be restarted unattended any more. Everybody's entries count."""
    acted = [item for item in history if item.has(Step.STOPPING) and item.outcome is not None]
    recent = [item for item in acted if now - item.entries[0].at <= BUDGET_WINDOW_S]
    if len(recent) >= BUDGET:
        return f"{len(recent)} recoveries within an hour: restarting does not cure this"
    same = [item for item in acted if fingerprint and item.summary.fingerprint == fingerprint]
    fruitless = 0
    came_back_at = now
    for item in reversed(same):
        was_proven = item.outcome is Outcome.RECOVERED
        if was_proven and came_back_at - item.entries[-1].at > PROGRESS_S:
            break
        fruitless += 1
        came_back_at = item.entries[0].at
    if fruitless >= SAME_CAUSE_MOST:
        return f"the same cause was restarted away {fruitless} times without progress"
    return None


def _asked_unless_yes(wish: Wish, why: str) -> Decision:
    if wish.yes:
        return Decision(Ruling.GO, why)
    if wish.is_terminal:
        return Decision(Ruling.ASK, why)
    return Decision(Ruling.REFUSE, "nobody can be asked: this is no terminal", "--yes goes without asking")
