"""The gates, as a grid: DESIGN 5.1's first rule."""

from __future__ import annotations

import pytest

from pdctl.diagnose.verdict import Verdict
from pdctl.recover.gates import Facts, Ruling, Wish, breaker, decide
from pdctl.recover.ledger import Entry, Outcome, Recovery, Step, Summary

GO, ASK, REFUSE = Ruling.GO, Ruling.ASK, Ruling.REFUSE
UNSURE = (Verdict.UNKNOWN, Verdict.FAILING, Verdict.DEGRADED)
SERVING = (Verdict.HEALTHY, Verdict.NOT_A_WEDGE)


@pytest.mark.parametrize(("wish", "ruling"), [
    (Wish(yes=True), GO),
    (Wish(is_terminal=True), ASK),
    (Wish(), REFUSE),
])  # fmt: skip
def test_wedge_goes_after_confirmation_or_yes(wish: Wish, ruling: Ruling) -> None:
    """A wedge needs no reason."""
    assert decide(wish, Facts(verdict=Verdict.WEDGED)).ruling is ruling


@pytest.mark.parametrize("verdict", UNSURE)
def test_firm_cause_with_a_restart_goes(verdict: Verdict) -> None:
    """Whatever the verdict, a firm cause whose action is a restart is enough."""
    assert decide(Wish(yes=True), Facts(verdict=verdict, has_restart_cause=True)).ruling is GO


@pytest.mark.parametrize("verdict", UNSURE)
@pytest.mark.parametrize(("wish", "ruling"), [
    (Wish(yes=True), REFUSE),
    (Wish(yes=True, reason="I know"), GO),
    (Wish(is_terminal=True), ASK),
])  # fmt: skip
def test_without_a_cause_yes_needs_a_reason(verdict: Verdict, wish: Wish, ruling: Ruling) -> None:
    """Unknown, failing and degraded ask on a terminal."""
    assert decide(wish, Facts(verdict=verdict)).ruling is ruling


@pytest.mark.parametrize("verdict", SERVING)
@pytest.mark.parametrize(("wish", "ruling"), [
    (Wish(yes=True, reason="why not"), REFUSE),
    (Wish(is_terminal=True), REFUSE),
    (Wish(yes=True, force=True), REFUSE),
    (Wish(yes=True, force=True, reason="drill"), GO),
])  # fmt: skip
def test_what_serves_is_not_restarted(verdict: Verdict, wish: Wish, ruling: Ruling) -> None:
    """Only --force with a reason."""
    assert decide(wish, Facts(verdict=verdict)).ruling is ruling


@pytest.mark.parametrize(("wish", "ruling"), [
    (Wish(is_planned=True, yes=True), REFUSE),
    (Wish(is_planned=True, yes=True, reason="upgrade"), GO),
    (Wish(is_planned=True, reason="upgrade", is_terminal=True), ASK),
])  # fmt: skip
def test_planned_restart_needs_a_reason_and_no_wedge(wish: Wish, ruling: Ruling) -> None:
    """There is no verdict at all."""
    assert decide(wish, Facts()).ruling is ruling


def test_never_the_last_healthy_instance() -> None:
    """Not even of a wedged system; --force --reason overrides."""
    facts = Facts(verdict=Verdict.WEDGED, last_healthy=("prefill-0",))
    refused = decide(Wish(yes=True), facts)
    assert (refused.ruling, refused.why.split()[0]) == (REFUSE, "prefill-0")
    assert decide(Wish(yes=True, force=True, reason="all of them"), facts).ruling is GO


def _past(name: str, at: float, outcome: Outcome, fingerprint: str = "f") -> Recovery:
    summary = Summary(command="c", targets=("x",), fingerprint=fingerprint)
    steps = ((Step.PLANNED, 0, None), (Step.STOPPING, 1, None), (Step.ENDED, 30, outcome))
    return Recovery(name, tuple(
        Entry(recovery=name, at=at + offset, step=step, by=name, outcome=end, summary=summary)
        for step, offset, end in steps
    ))  # fmt: skip


def test_breaker_counts_everybodys_failures_of_one_fingerprint() -> None:
    """Two without success stop a third; one does not, nor do those of another cause."""
    failed = [_past("ann", 1000, Outcome.NOT_VERIFIED), _past("bob", 2000, Outcome.NOT_READY)]
    assert breaker(failed, "f", 2100) == "the same cause was restarted away 2 times without progress"
    assert breaker(failed[:1], "f", 2100) is None
    assert breaker(failed, "g", 2100) is None


def test_recovery_that_held_is_progress_and_one_that_did_not_is_none() -> None:
    """Proven, and back within ten minutes: no progress. Proven and quiet for longer: progress."""
    soon = [_past("ann", 1000, Outcome.RECOVERED), _past("bob", 1300, Outcome.RECOVERED)]
    assert breaker(soon, "f", 1500) == "the same cause was restarted away 2 times without progress"
    late = [_past("ann", 1000, Outcome.RECOVERED), _past("bob", 1300, Outcome.RECOVERED)]
    assert breaker(late, "f", 1330 + 601) is None


def test_budget_of_an_hour() -> None:
    """Five recoveries of whatever cause within an hour are enough; after it they are forgotten."""
    many = [_past(str(n), 1000 + 600 * n, Outcome.RECOVERED, fingerprint=str(n)) for n in range(5)]
    assert breaker(many, "x", 4500) == "5 recoveries within an hour: restarting does not cure this"
    assert breaker(many, "x", 4700) is None


def test_breaker_stops_yes_but_not_a_person() -> None:
    """Automatic retries end; who sits at a terminal may go on."""
    facts = Facts(verdict=Verdict.WEDGED, breaker="twice without progress")
    assert decide(Wish(yes=True), facts).ruling is REFUSE
    assert decide(Wish(is_terminal=True), facts).ruling is ASK
