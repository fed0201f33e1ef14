"""What the bootstrap port of a prefill answers: its incarnation, and where its control channel is."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from engine.api.errors import HANDLERS
from engine.api.responses import json_response
from engine.api.service import Service, service_of
from engine.transfer.control.registry import RegistryRecord


async def registry(request: Request) -> Response:
    """Return the record; 503 while loading, draining or dying, so that nobody pairs with what cannot serve."""
    service = service_of(request)
    service.check_serving()
    config, ready = service.config, service.ready
    assert ready.control_endpoint is not None  # A prefill has bound it before it is ready.
    record = RegistryRecord(
        instance=config.instance,
        incarnation=config.incarnation,
        role=config.role,
        control_endpoint=ready.control_endpoint,
        contract=ready.contract,
    )
    return json_response(record)


def make_registry(service: Service) -> Starlette:
    """Return the application of the bootstrap port."""
    app = Starlette(routes=[Route("/registry", registry)], exception_handlers=HANDLERS)
    app.state.service = service
    return app
