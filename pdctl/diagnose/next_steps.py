"""What to do next, with the real names filled in, and what it costs."""

from __future__ import annotations

from pdctl.diagnose.case import Case
from pdctl.diagnose.catalogue import Action
from pdctl.diagnose.judgement import Judgement
from pdctl.diagnose.report import Step

_RESTARTS = (Action.RESTART_PAIR, Action.RESTART_INSTANCE, Action.RESTART_ROUTER)
_KEEP = Step(text="keep the evidence", action="none", command="pdctl snapshot", risk="read-only")
_PROVE = Step(
    text="prove that service is back", action="none", command="pdctl probe --direct --count 5", risk="read-only"
)


def steps_for(case: Case, judgement: Judgement) -> tuple[Step, ...]:
    """Return the steps of a firm cause: keep the evidence, act, prove it."""
    action = judgement.code.action
    act = _act(case, judgement)
    if action in (*_RESTARTS, Action.ABORT_ALL, Action.REPLACE_HOST):
        return _KEEP, act, _PROVE
    return (act, _PROVE) if action is Action.FIX_CONFIG else (act,)


def _act(case: Case, judgement: Judgement) -> Step:
    code, name, action = judgement.code.code, judgement.instance, judgement.code.action
    targets = _targets(case, judgement, action)
    explain = f"pdctl explain {code}"
    texts = {
        Action.ABORT_ALL: (
            f"abort what waits on {name}; a restart does that too",
            f"pdctl restart {name} --reason {code}",
            "loses-requests",
        ),
        Action.REPLACE_HOST: (f"take the host of {name} out of service, then restart elsewhere", explain, "restarts"),
        Action.FIX_CONFIG: (
            f"correct the setting that the observations name on {name}, then restart it",
            explain,
            "restarts",
        ),
        Action.SCALE: ("add capacity or admit less; a restart makes it worse", explain, "read-only"),
        Action.WAIT: (f"wait for {name}; do not restart it", "pdctl status", "read-only"),
    }
    restart = (
        f"restart {' and '.join(targets)}, in this order",
        f"pdctl restart {' '.join(targets)} --reason {code}",
        "restarts",
    )
    if action in _RESTARTS:
        text, command, risk = restart
    else:
        text, command, risk = texts.get(action, ("nothing to do on the engines", explain, "read-only"))
    return Step(text=text, action=action, command=command, risk=risk)


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
