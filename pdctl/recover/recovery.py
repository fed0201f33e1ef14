"""From a wedge to proven service: diagnose, plan, gates, confirm, preflight, snapshot, restart, verify, ledger."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError
from pdctl.hosts.hosts import Hosts
from pdctl.recover import exclusive, gates, mild, plan, states, verification
from pdctl.recover.elsewhere import Elsewhere
from pdctl.recover.guards import hosts_of
from pdctl.recover.handover import Following
from pdctl.recover.ledger import Entry, Ledger, Notes, Outcome, PhaseTime, Recovery, Step, Summary, operator
from pdctl.recover.ledgers import MirroredLedger
from pdctl.recover.managers import Managers
from pdctl.recover.proposal import Choice, Proposal
from pdctl.recover.proposing import propose
from pdctl.recover.request import Operations, Phases, Request, Result


def recover(
    folder: StateFolder, deployment: Deployment, request: Request, operations: Operations, hosts: Hosts
) -> Result:
    """Do it all. Raises Refused by a gate, PdctlError where nothing was stopped; Interrupted after Ctrl-C."""
    managers = Managers(folder, deployment, hosts.of)
    if request.dry_run:
        half_done = Ledger(folder.folder).unfinished()
        if half_done is not None and half_done.has(Step.STOPPING):
            operations.say(f"{half_done.id} is half done; without --dry-run this would only finish it")
        proposal, _ = propose(folder, deployment, request, operations, Phases(), managers, hosts)
        return Result(deployment=deployment.name, recovery=None, outcome=None, proposal=proposal)
    with exclusive.sole_operator(folder):
        if folder.load() is None:
            folder.keep(deployment)  # The words that say how to finish or follow name it.
        ledger = Ledger(folder.folder)
        half_done = ledger.unfinished()
        if half_done is not None and _must_be_finished(folder, ledger, half_done, operations.say):
            return _continued(folder, managers, hosts, half_done.id, request, operations)
        phases = Phases()
        proposal, targets = propose(folder, deployment, request, operations, phases, managers, hosts)
        choice = _choice(proposal, request, operations)
        phases.lap("confirm")
        return _acted(_Run(folder, ledger, managers, hosts, request, operations, phases), proposal, targets, choice)


@dataclass(frozen=True, slots=True)
class _Run:
    folder: StateFolder
    ledger: Ledger
    managers: Managers
    hosts: Hosts
    request: Request
    operations: Operations
    phases: Phases


class _Carrier(Protocol):
    """Who carries a plan out, and tells how that ended."""

    def hand_over(self, whole: plan.Plan) -> None: ...

    def until_executed(self) -> tuple[Outcome, str]: ...


def _must_be_finished(folder: StateFolder, ledger: Ledger, half_done: Recovery, say: Callable[[str], None]) -> bool:
    """Return whether an earlier recovery has stopped something; if not, it is given up for good.

    Under the lock that its executor, should it still come, takes before its first signal.
    """
    with folder.locked(say):
        if ledger.recovery(half_done.id).has(Step.STOPPING):
            return True
        Notes(ledger, half_done.id).note(Step.ENDED, detail="its client was gone", outcome=Outcome.ABANDONED)
        return False


def _choice(proposal: Proposal, request: Request, operations: Operations) -> Choice:
    if proposal.decision.ruling is gates.Ruling.ASK:
        return operations.choose(proposal)
    return Choice.SNAPSHOT if proposal.snapshot_s is not None else Choice.RESTART


def _acted(run: _Run, proposal: Proposal, targets: tuple[plan.Target, ...], choice: Choice) -> Result:
    name = proposal.deployment.name
    if choice is Choice.QUIT:
        return Result(deployment=name, recovery=None, outcome=Outcome.CANCELLED, detail="nothing was changed")
    whole = plan.Plan(
        id=plan.fresh_id(),
        deployment=proposal.deployment,
        targets=targets,
        drain_s=proposal.drain_s,
        ready_timeout_s=run.request.ready_timeout_s,
    )
    run = dataclasses.replace(run, ledger=_mirrored(run.folder, whole, run.hosts, run.operations.say))
    run.ledger.append(_first_line(whole.id, proposal, run.request))
    notes = Notes(run.ledger, whole.id)
    following: _Carrier = Following(run.folder, whole.id, run.operations.say, proposal.predicted_s)
    if not any(run.managers.manages(target.name) for target in targets):
        following = Elsewhere(run.ledger, whole.id, run.operations.say, hosts=run.hosts)
    kept = cured = None
    try:
        if choice is Choice.SNAPSHOT and run.operations.snapshot:
            notes.note(Step.SNAPSHOT)
            kept = run.operations.snapshot()
            run.phases.lap("snapshot")
        if proposal.abort_first:
            cured = _mildly_cured(run, whole, proposal.abort_first)
        if cured is None:
            following.hand_over(whole)
    except (KeyboardInterrupt, PdctlError):
        notes.note(Step.ENDED, detail="before the first signal", outcome=Outcome.CANCELLED)
        raise
    result = cured or _finished(run, whole, following)
    return msgspec.structs.replace(result, kept=str(kept), archive=_shared(run, kept)) if kept else result


def _mildly_cured(run: _Run, whole: plan.Plan, names: tuple[str, ...]) -> Result | None:
    """End all requests and prove that it was enough; None where it was not: then comes the restart."""
    Notes(run.ledger, whole.id).note(Step.ABORTING, detail=", ".join(names))
    mild.abort_all([one for one in whole.deployment.instances if one.name in names], run.operations.say)
    has_helped = mild.has_helped(whole.deployment, names, run.operations.say)
    run.phases.lap("abort")
    proof = _verified(run, whole) if has_helped else None
    if proof is None or proof.outcome is not Outcome.RECOVERED:
        run.operations.say("ending all requests was not enough; restarting")
        return None
    run.phases.lap("verify")
    return _ended(run, whole, proof.outcome, "all requests were ended, nothing was restarted", proof)


def _mirrored(folder: StateFolder, whole: plan.Plan, hosts: Hosts, say: Callable[[str], None]) -> Ledger:
    """Return the ledger that is also written where the plan's processes are."""
    return MirroredLedger(folder, [hosts.of(name) for name in hosts_of(whole)], say)


def _shared(run: _Run, kept: Path) -> str | None:
    """Make the archive, now that service is back; what goes wrong with it costs nobody anything."""
    if run.operations.share is None:
        return None
    try:
        return str(run.operations.share(kept))
    except (PdctlError, OSError, KeyboardInterrupt) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        run.operations.say(f"no archive was made: {why}; later: pdctl redact {kept}")
        return None


def _continued(
    folder: StateFolder,
    managers: Managers,
    hosts: Hosts,
    recovery: str,
    request: Request,
    operations: Operations,
) -> Result:
    whole = plan.load(folder.folder, recovery)
    ledger = _mirrored(folder, whole, hosts, operations.say)
    began_by = ledger.recovery(recovery).entries[0].by
    operations.say(f"{recovery} of {began_by} is half done; finishing it first")
    run = _Run(folder, ledger, managers, hosts, request, operations, Phases())
    result = _finished(run, whole, Following(folder, recovery, operations.say))
    return msgspec.structs.replace(result, was_continued=True)


def _finished(run: _Run, whole: plan.Plan, following: _Carrier) -> Result:
    """Follow the execution, verify, write the end down."""
    outcome, detail = following.until_executed()
    run.phases.split(_execution_phases(run.ledger.recovery(whole.id)))
    proof = None
    if outcome is Outcome.STARTED:
        proof = _verified(run, whole)
        outcome, detail = proof.outcome, proof.problem() or ""
        run.phases.lap("verify")
    return _ended(run, whole, outcome, detail, proof)


def _ended(
    run: _Run, whole: plan.Plan, outcome: Outcome, detail: str, proof: verification.Verification | None
) -> Result:
    after = states.take(run.folder, whole.deployment, run.hosts)
    summary = run.ledger.recovery(whole.id).summary
    end = Entry(
        recovery=whole.id,
        at=time.time(),
        step=Step.ENDED,
        by=operator(),
        detail=detail,
        outcome=outcome,
        after=after,
        phases=run.phases.all(),
    )
    run.ledger.append(end)
    return Result(
        deployment=whole.deployment.name,
        recovery=whole.id,
        outcome=outcome,
        detail=detail,
        before=summary.before,
        after=after,
        phases=end.phases,
        verification=proof,
    )


def _execution_phases(recovery: Recovery) -> tuple[PhaseTime, ...]:
    """Return how long stopping and starting took, by the ledger's stamps: another process did it."""
    stopping, executed = recovery.last(Step.STOPPING), recovery.last(Step.EXECUTED)
    if stopping is None or executed is None:
        return ()
    stopped = max((entry.at for entry in recovery.entries if entry.step is Step.STOPPED), default=stopping.at)
    return (
        PhaseTime("stop", round(stopped - stopping.at, 3)),
        PhaseTime("start to ready", round(executed.at - stopped, 3)),
    )


def _verified(run: _Run, whole: plan.Plan) -> verification.Verification:
    Notes(run.ledger, whole.id).note(Step.VERIFYING)
    names = tuple(target.name for target in whole.targets)
    locks = plan.folder_of(run.folder.folder, whole.id) / "probes"
    timeout_s = run.request.probe_timeout_s
    say, deployment = run.operations.say, whole.deployment
    return verification.verify(deployment, names, locks, timeout_s=timeout_s, say=say, hosts=run.hosts)


def _first_line(recovery: str, proposal: Proposal, request: Request) -> Entry:
    cause = next(iter(mild.acting_causes(proposal.report)), None) if proposal.report else None
    summary = Summary(
        command=request.command,
        targets=proposal.chosen.names,
        reason=request.wish.reason,
        verdict=proposal.report.verdict if proposal.report else None,
        cause=f"{cause.code} {cause.name}" if cause else None,
        fingerprint=cause.fingerprint if cause else None,
        forced=request.wish.force,
        before=proposal.before,
    )
    return Entry(recovery=recovery, at=time.time(), step=Step.PLANNED, by=operator(), summary=summary)
