"""POST /abort_request and POST /drain."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.api.bodies import raw_body
from engine.api.responses import json_response
from engine.api.service import service_of
from engine.errors import RequestError
from engine.frontend.bodies import AbortBody, read_body

ABORT_REASON = "aborted by the operator"


class Aborted(msgspec.Struct, frozen=True):
    asked: list[str]
    """What the scheduler was told to end; an unknown id is ignored there."""


class Draining(msgspec.Struct, frozen=True):
    status: str
    sequences_in_flight: int
    drain_timeout_s: float


async def abort_request(request: Request) -> Response:
    """End one request (`rid`: a request id or a sequence's) or all (`abort_all`). Their clients are told."""
    service = service_of(request)
    body = read_body(await raw_body(request) or b"{}", AbortBody)
    if body.rid is None and not body.abort_all:
        raise RequestError(400, "invalid_value", "give rid, or abort_all: true", "rid")
    rids = service.client.live_rids() if body.abort_all else [body.rid or ""]
    for rid in rids:
        service.client.abort(rid, ABORT_REASON)
    return json_response(Aborted(rids))


async def drain(request: Request) -> Response:
    """Take nothing new, finish what is there, then exit 0. Returns at once."""
    service = service_of(request)
    service.drain_asked.set()
    state = Draining("draining", service.client.in_flight, service.config.drain_timeout_s)
    return json_response(state, 202)
