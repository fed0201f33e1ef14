"""Diagnose, choose the restart set, hold it against the gates and the preflight. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pdctl.deployment.model import Deployment, Instance
from pdctl.deployment.state import StateFolder
from pdctl.diagnose.report import Report
from pdctl.diagnose.verdict import Verdict
from pdctl.errors import Refused
from pdctl.hosts.hosts import Hosts
from pdctl.recover import blame, gates, mild, plan, preflight, restart_set, states
from pdctl.recover.drift import Drift
from pdctl.recover.ledgers import everybodys
from pdctl.recover.managers import Managers
from pdctl.recover.proposal import Proposal
from pdctl.recover.request import Operations, Phases, Request
from pdctl.recover.restart_set import RestartSet, StoppedWith

DRAIN_S = 5.0
"""The requests of healthy peers may need it."""
SILENT_DRAIN_S = 1.0
"""Where no request gets through there is none to wait for: time for a farewell to the peers."""


def propose(
    folder: StateFolder,
    deployment: Deployment,
    request: Request,
    operations: Operations,
    phases: Phases,
    managers: Managers,
    hosts: Hosts,
) -> tuple[Proposal, tuple[plan.Target, ...]]:
    """Return what could be done and its targets. Raises Refused by a gate, the preflight or drift."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        # What hangs costs its timeout once, not here and in the first sample one after the other.
        looking = pool.submit(states.take, folder, deployment, hosts)
        report = operations.diagnose() if operations.diagnose else None
        before = looking.result()
    phases.lap("diagnose")
    chosen = _chosen(deployment, request, report, managers.stopped_with)
    instances = tuple(item for item in deployment.instances if item.name in chosen.names)
    history = everybodys(folder, deployment, hosts, operations.say)
    cause = blame.initiating_restart(report) if report else None
    asked = _asked(deployment, request, report, operations, is_sure=cause is not None)
    facts = gates.Facts(
        verdict=Verdict(report.verdict) if report else None,
        has_restart_cause=cause is not None,
        last_healthy=states.last_healthy(deployment, chosen.names, asked.healthy),
        breaker=gates.breaker(history, cause.fingerprint if cause else None, time.time()),
    )
    decision = gates.decide(request.wish, facts)
    if decision.ruling is gates.Ruling.REFUSE and not request.dry_run:
        raise Refused(f"{decision.why}; nothing was changed", decision.hint)
    if any(managers.manages(item.name) for item in instances):
        # Only then do we stop something; what others run they must be able to start themselves.
        preflight.check(folder, instances, managers.problems)
    differences = _accepted_drift(managers, instances, request)
    targets = plan.in_starting_order(tuple(plan.target_of(item, managers.look(item.name)) for item in instances))
    ready_s = states.start_to_ready_s(history, chosen.names)
    proposal = Proposal(
        deployment=deployment,
        chosen=chosen,
        decision=decision,
        before=before,
        drift=differences,
        predicted_s=ready_s,
        drain_s=drain_s(request.drain_s, chosen.names, asked),
        snapshot_s=operations.snapshot_budget_s if operations.snapshot else None,
        report=report,
        abort_first=mild.engines_to_clear(deployment, report, history, time.time()),
    )
    phases.lap("plan and preflight")
    return proposal, targets


def _accepted_drift(managers: Managers, instances: Sequence[Instance], request: Request) -> tuple[Drift, ...]:
    """Return what else would be deployed. Raises Refused where that is not accepted."""
    found = tuple(difference for item in instances for difference in managers.drift(item))
    if found and not request.accept_drift and not request.dry_run:
        words = "; ".join(f"{difference.instance}: {difference.what}" for difference in found)
        raise Refused(f"a restart would deploy more than it repairs: {words}", "--accept-drift, if that is meant")
    return found


def _chosen(deployment: Deployment, request: Request, report: Report | None, stopped_with: StoppedWith) -> RestartSet:
    """Return the restart set. Raises Refused where a named set would leave a peer behind that does not survive."""
    if not request.names:
        found = restart_set.seeds(deployment, report) if report else restart_set.engines(deployment)
        return restart_set.closed(deployment, found, stopped_with)
    closed = restart_set.closed(deployment, request.names, stopped_with)
    if not closed.joined:
        return closed
    if request.wish.force and request.wish.reason:
        # What its manager stops all the same must be started again, force or not.
        return restart_set.closed(deployment, request.names, stopped_with, with_victims=False)
    why = "; ".join(f"{item.name} would be left behind: {item.because}" for item in closed.joined)
    raise Refused(
        f"{why}; nothing was changed", f"{request.command} {' '.join(closed.names)}, or --force --reason 'WHY'"
    )


def _asked(
    deployment: Deployment, request: Request, report: Report | None, operations: Operations, *, is_sure: bool
) -> states.Asked:
    """Ask who serves, unless the gates decide without."""
    if request.wish.force or (request.wish.is_planned and not request.wish.reason):
        return states.Asked()
    seen = report.impact.pairs if report else ()
    return states.ask(deployment, seen, states.SURE_PROBE_S if is_sure else states.HEALTH_PROBE_S, operations.say)


def drain_s(wanted: float | None, names: Sequence[str], asked: states.Asked) -> float:
    """Return the seconds for requests in flight: what the operator wants, else what they can still be good for."""
    if wanted is not None:
        return wanted
    return SILENT_DRAIN_S if asked.silent.issuperset(names) else DRAIN_S
