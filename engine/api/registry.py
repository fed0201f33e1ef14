"""What the bootstrap port of a prefill answers: its incarnation, and where its control channel is."""

from __future__ import annotations

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine import PROTOCOL_VERSION
from engine.api.errors import HANDLERS
from engine.api.responses import json_response
from engine.api.service import Service, service_of


class RegistryEntry(msgspec.Struct, frozen=True, kw_only=True):
    protocol: int
    instance: str
    incarnation: str
    role: str
    tp: int
    rank_count: int
    control_endpoint: str | None
    contract: dict[str, str]


async def registry(request: Request) -> Response:
    """Return the entry; 503 while loading, draining or dying, so that nobody pairs with what cannot serve."""
    service = service_of(request)
    service.check_serving()
    config, ready = service.config, service.ready
    entry = RegistryEntry(
        protocol=PROTOCOL_VERSION,
        instance=config.instance,
        incarnation=config.incarnation,
        role=config.role,
        tp=1,
        rank_count=1,
        control_endpoint=ready.control_endpoint,
        contract=ready.contract,
    )
    return json_response(entry)


def make_registry(service: Service) -> Starlette:
    """Return the application of the bootstrap port."""
    app = Starlette(routes=[Route("/registry", registry)], exception_handlers=HANDLERS)
    app.state.service = service
    return app
