"""The step after a restart whose direct requests pass while the router's do not: the router itself."""

from __future__ import annotations

import msgspec

from pdctl.deployment.model import Deployment, Role
from pdctl.recover.gates import Wish
from pdctl.recover.ledger import Outcome
from pdctl.recover.request import Request, Result

REASON = "direct requests pass, those through the router do not"


def router_command(deployment: Deployment) -> str:
    """Return what restarts the router alone, typed by a person."""
    name = deployment.router.name if deployment.router else Role.ROUTER
    return f"pdctl restart {name} --name {deployment.name} --force --reason '{REASON}'"


def router_request(result: Result, request: Request, deployment: Deployment) -> Request | None:
    """Return the restart of the router where that comes next and a person can be asked; it is not covered by --yes.

    None where it does not: after a restart of the router it would only go round.
    """
    router = deployment.router
    if result.outcome is not Outcome.ROUTER or router is None or not request.wish.is_terminal:
        return None
    if request.names == (router.name,):
        return None
    wish = Wish(is_planned=True, force=True, reason=REASON, is_terminal=True)
    return msgspec.structs.replace(request, command="pdctl restart", wish=wish, names=(router.name,))
