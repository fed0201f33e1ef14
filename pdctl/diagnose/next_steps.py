"""What to do next, with the real names filled in, and what it costs."""

from __future__ import annotations

from pdctl.diagnose.case import Case
from pdctl.diagnose.catalogue import Action
from pdctl.diagnose.judgement import Judgement
from pdctl.diagnose.report import Step


def steps_for(case: Case, judgement: Judgement) -> tuple[Step, ...]:
    """Return the steps of a firm cause: keep the evidence, act, prove it."""
    action = judgement.code.action
    targets = _targets(case, judgement, action)
    keep = Step(text="keep the evidence", action="none", command="pdctl snapshot", risk="read-only")
    prove = Step(
        text="prove that service is back",
        action="none",
        command="pdctl probe --direct --count 5",
        risk="read-only",
    )
    reason = f"--reason {judgement.code.code}"
    match action:
        case Action.RESTART_PAIR | Action.RESTART_INSTANCE | Action.RESTART_ROUTER:
            text = f"restart {' and '.join(targets)}, in this order"
            act = Step(
                text=text,
                action=action,
                command=f"pdctl restart {' '.join(targets)} {reason}",
                risk="restarts",
            )
            return keep, act, prove
        case Action.ABORT_ALL:
            text = f"abort what waits on {judgement.instance}"
            act = Step(
                text=text,
                action=action,
                command=f"pdctl explain {judgement.code.code}",
                risk="loses-requests",
            )
            return keep, act, prove
        case Action.REPLACE_HOST:
            text = f"take the host of {judgement.instance} out of service, then restart elsewhere"
            return (
                keep,
                Step(text=text, action=action, command=f"pdctl explain {judgement.code.code}", risk="restarts"),
                prove,
            )
        case Action.FIX_CONFIG:
            text = f"correct the setting that the observations name on {judgement.instance}, then restart it"
            return Step(
                text=text, action=action, command=f"pdctl explain {judgement.code.code}", risk="restarts"
            ), prove
        case Action.SCALE:
            text = "add capacity or admit less; a restart makes it worse"
            return (Step(text=text, action=action, command=f"pdctl explain {judgement.code.code}", risk="read-only"),)
        case Action.WAIT:
            text = f"wait for {judgement.instance}; do not restart it"
            return (Step(text=text, action=action, command="pdctl status", risk="read-only"),)
    return (
        Step(
            text="nothing to do on the engines",
            action=action,
            command=f"pdctl explain {judgement.code.code}",
            risk="read-only",
        ),
    )


def _targets(case: Case, judgement: Judgement, action: Action) -> tuple[str, ...]:
    """Return the instances to restart: prefill first, so that decode meets the new one."""
    if action is Action.RESTART_ROUTER:
        return tuple(view.name for view in case.routers)[:1] or (judgement.instance,)
    affected = [view for view in case.views if view.name in judgement.affected]
    if action is Action.RESTART_INSTANCE:
        return tuple(view.name for view in affected) or (judgement.instance,)
    both = {view.name for view in affected} | {peer.name for view in affected for peer in case.peers(view)}
    ordered = sorted(
        (view for view in case.views if view.name in both),
        key=lambda view: (view.role != "prefill", view.name),
    )
    return tuple(view.name for view in ordered) or (judgement.instance,)
