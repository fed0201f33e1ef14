"""Whom a report blames firmly, and whether that says what to do."""

from __future__ import annotations

from pdctl.deployment.model import Role
from pdctl.diagnose.catalogue import Action, code_of
from pdctl.diagnose.report import Cause, Report
from pdctl.diagnose.verdict import Verdict

RESTARTS = (Action.RESTART_PAIR, Action.RESTART_INSTANCE, Action.RESTART_ROUTER)
CLIENT_GONE = "PD0904"


def initiating(report: Report) -> tuple[Cause, ...]:
    """Return the firm initiating causes, best first.

    A router is not to blame alone where a request that never saw it failed too.
    """
    doubted = Action.RESTART_ROUTER if has_direct_failure(report) else None
    firm = (cause for cause in report.firm if cause.causal_role == "initiating")
    return tuple(cause for cause in firm if code_of(cause.code).action is not doubted)


def initiating_restarts(report: Report) -> tuple[Cause, ...]:
    """Return those of them whose action is a restart."""
    return tuple(cause for cause in initiating(report) if code_of(cause.code).action in RESTARTS)


def has_direct_failure(report: Report) -> bool:
    """Return whether a request of this run failed on a pair, without the router."""
    return any(row.get("via") != Role.ROUTER and row.get("status") != 200 for row in report.probe)


def blames_only_the_router(report: Report) -> bool:
    """Return whether every restart that the causes call for is the router's."""
    causes = initiating_restarts(report)
    return bool(causes) and all(code_of(cause.code).action is Action.RESTART_ROUTER for cause in causes)


def blames_only_the_clients(report: Report) -> bool:
    """Return whether all that is found is that clients left."""
    return {cause.code for cause in initiating(report)} == {CLIENT_GONE}


def is_explained(report: Report) -> bool:
    """Return whether a firm cause says what to do: a restart, or, where requests fail already, anything else.

    Where none fails yet, a cause that no restart cures may stand beside a wedge that is still forming.
    """
    return bool(initiating(report) if report.verdict == Verdict.FAILING else initiating_restarts(report))


def initiating_restart(report: Report) -> Cause | None:
    """Return the best of them."""
    return next(iter(initiating_restarts(report)), None)
