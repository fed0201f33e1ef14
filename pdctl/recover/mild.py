"""The mild step: end every request of the engines concerned, before anything is restarted.

It comes first only where requests that wait are all that is wrong, and where the capability table says that every
engine concerned survives aborts. It stops no process: who is killed in the middle of it leaves nothing down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from pdctl.collect.http import Timeouts, client_for
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.diagnose.catalogue import Action, code_of
from pdctl.diagnose.report import Cause, Report
from pdctl.dialects import catalogue
from pdctl.dialects.family import Capability, Kind, Support
from pdctl.errors import PdctlError
from pdctl.probe import Verdict, prove
from pdctl.recover import gates
from pdctl.recover.blame import initiating_restarts
from pdctl.recover.ledger import Recovery, Step
from pdctl.recover.restart_set import affected_pairs

CURED = ("PD0402", "PD0405")
"""Requests wait behind one that cannot go on; the engines themselves are well."""
PROBE_S = 8.0
"""One request a pair tells whether it helped: in this time, or the restart comes."""
_ASK = Timeouts(connect_s=2.0, read_s=5.0, total_s=6.0)


def engines_to_clear(
    deployment: Deployment, report: Report | None, history: Sequence[Recovery], now: float
) -> tuple[str, ...]:
    """Return the engines whose requests should be ended first; none where only a restart helps, or it was tried.

    Tried is what a recovery of the same cause did a short time ago: it came back.
    """
    causes = acting_causes(report) if report else ()
    if not causes or any(cause.code not in CURED for cause in causes):
        return ()
    if any(_was_tried(item, causes, now) for item in history):
        return ()
    named = {name for cause in causes for name in (*cause.affected, cause.subject.instance)}
    concerned = {engine.name for pair in affected_pairs(deployment, named) for engine in pair} | named
    engines = [one for one in deployment.instances if one.name in concerned and one.role is not Role.ROUTER]
    return tuple(one.name for one in engines) if engines and all(map(_takes_aborts, engines)) else ()


def acting_causes(report: Report) -> tuple[Cause, ...]:
    """Return the firm initiating causes that call for a restart or for aborts, best first."""
    aborts = (cause for cause in report.firm if code_of(cause.code).action is Action.ABORT_ALL)
    return (*initiating_restarts(report), *(cause for cause in aborts if cause.causal_role == "initiating"))


def abort_all(instances: Iterable[Instance], say: Callable[[str], None]) -> None:
    """Ask each engine to end all of its requests, whose clients are told; one that refuses is told to `say`."""
    for instance in instances:
        family = catalogue.family(instance.dialect, Kind.ENGINE)
        assert family is not None, "engines_to_clear takes none without one"
        try:
            with client_for(instance, _ASK) as client:
                answer = client.post(family.abort_path, {"abort_all": True})
            say(f"{instance.name}: {'requests ended' if answer.ok else f'not aborted: {answer.describe()}'}")
        except PdctlError as error:
            say(f"{instance.name}: not aborted: {error.message}")


def has_helped(deployment: Deployment, names: Iterable[str], say: Callable[[str], None]) -> bool:
    """Return whether one request passes on every affected pair now."""
    for pair in affected_pairs(deployment, names):
        alone = msgspec.structs.replace(deployment, instances=pair)
        try:
            if prove(alone, direct=True, timeout_s=PROBE_S, progress=say).verdict is not Verdict.PROVEN:
                return False
        except PdctlError as error:
            say(f"{pair[0].name} -> {pair[1].name}: not probed: {error.message}")
            return False
    return True


def _was_tried(item: Recovery, causes: Sequence[Cause], now: float) -> bool:
    is_same = item.summary.fingerprint in {cause.fingerprint for cause in causes}
    return is_same and item.has(Step.ABORTING) and now - item.entries[-1].at <= gates.PROGRESS_S


def _takes_aborts(engine: Instance) -> bool:
    family = catalogue.family(engine.dialect, Kind.ENGINE)
    support, _ = catalogue.capability(
        engine.dialect, Kind.ENGINE, Capability.ABORT_SAFE, engine.version, engine.transfer
    )
    return family is not None and bool(family.abort_path) and support is Support.YES
