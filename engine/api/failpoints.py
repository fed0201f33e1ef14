"""GET and POST /failpoints: which faults can be caused here, and switching one on or off."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from engine.api.bodies import raw_body
from engine.api.responses import json_response
from engine.api.service import Service, service_of
from engine.errors import RequestError
from engine.frontend.bodies import FailpointBody, read_body
from engine.observe.records import FailpointState


async def list_failpoints(request: Request) -> Response:
    """Return every failpoint of this role, what it does, and whether it is on."""
    service = _enabled(request)
    return json_response(await service.client.observe("failpoints", list[FailpointState]))


async def switch_failpoint(request: Request) -> Response:
    """Switch one failpoint on or off (`name`, `on`); returns all. Works while the loop hangs."""
    service = _enabled(request)
    body = read_body(await raw_body(request), FailpointBody)
    known = {state.name: state for state in await service.client.observe("failpoints", list[FailpointState])}
    if body.name not in known:
        here = f"a {service.config.role} of {service.config.tp} rank(s)"
        message = f"no failpoint {body.name!r} on {here}; there are {', '.join(known)}"
        raise RequestError(404, "unknown_failpoint", message, "name")
    if service.ranks is not None and known[body.name].leaves_dead_ranks:
        service.ranks.forsaken = body.on
    what = "arm" if body.on else "disarm"
    return json_response(await service.client.observe(what, list[FailpointState], argument=body.name))


def _enabled(request: Request) -> Service:
    service = service_of(request)
    _ = service.ready
    if not service.config.enable_failpoints:
        message = "this instance was started without --enable-failpoints, so there are none in it"
        raise RequestError(404, "no_failpoints", message)
    return service
