"""Whether restarting the router comes next, and under which yes."""

from __future__ import annotations

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.recover.gates import Facts, Ruling, Wish, decide
from pdctl.recover.ledger import Outcome
from pdctl.recover.request import Request, Result
from pdctl.recover.router_step import REASON, router_request

ROUTER = Instance(name="front", role=Role.ROUTER, dialect="smg", url="http://127.0.0.1:1")
DEPLOYMENT = Deployment(name="lab", model="m", instances=(ROUTER,))


def asked(
    outcome: Outcome = Outcome.ROUTER,
    *,
    is_terminal: bool = True,
    names: tuple[str, ...] = (),
    deployment: Deployment = DEPLOYMENT,
) -> Request | None:
    wish = Wish(yes=True, reason="pager", is_terminal=is_terminal)
    request = Request(command="pdctl snapshot-and-restart", wish=wish, names=names, drain_s=5.0)
    return router_request(Result(deployment="lab", recovery="r", outcome=outcome), request, deployment)


def test_the_router_comes_next_when_it_alone_fails() -> None:
    """Named, with a reason for the history, and the limits of the restart before."""
    following = asked()
    assert following is not None
    assert (following.names, following.wish.reason, following.drain_s) == (("front",), REASON, 5.0)


def test_the_yes_to_the_first_restart_is_none_to_this_one() -> None:
    """The gate asks, whatever it finds."""
    following = asked()
    assert following is not None
    assert decide(following.wish, Facts(last_healthy=("front",))).ruling is Ruling.ASK


def test_nobody_is_asked_where_nothing_is_to_be_asked() -> None:
    """No terminal, another outcome, no router, or the router was what was restarted."""
    assert asked(is_terminal=False) is None
    assert asked(Outcome.NOT_VERIFIED) is None
    assert asked(Outcome.RECOVERED) is None
    assert asked(names=("front",)) is None
    assert asked(deployment=Deployment(name="lab", model="m", instances=())) is None
