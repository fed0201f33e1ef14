"""The table of routes, and the application made of it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from engine.api import about, admin, chat, completions, failpoints, generate, observe, tokens
from engine.api.access import Access, Endpoint, guarded
from engine.api.errors import HANDLERS
from engine.api.meters import MeteredApp
from engine.api.service import Service


@dataclass(frozen=True, slots=True)
class RouteInfo:
    """One route. GET answers HEAD too."""

    method: str
    path: str
    endpoint: Endpoint
    access: Access


ROUTES = (
    RouteInfo("POST", "/v1/chat/completions", chat.chat_completions, Access.KEY),
    RouteInfo("POST", "/v1/completions", completions.completions, Access.KEY),
    RouteInfo("POST", "/generate", generate.generate, Access.KEY),
    RouteInfo("POST", "/tokenize", tokens.tokenize, Access.KEY),
    RouteInfo("POST", "/detokenize", tokens.detokenize, Access.KEY),
    RouteInfo("GET", "/v1/models", about.models, Access.OPEN),
    RouteInfo("GET", "/server_info", about.server_info, Access.OPEN),
    RouteInfo("GET", "/get_server_info", about.server_info, Access.OPEN),
    RouteInfo("GET", "/model_info", about.model_info, Access.OPEN),
    RouteInfo("GET", "/get_model_info", about.model_info, Access.OPEN),
    RouteInfo("GET", "/health", observe.health, Access.OPEN),
    RouteInfo("GET", "/health/live", observe.live, Access.OPEN),
    RouteInfo("GET", "/metrics", observe.metrics, Access.OPEN),
    RouteInfo("GET", "/v1/loads", observe.loads, Access.OPEN),
    RouteInfo("GET", "/ledger", observe.ledger, Access.OPEN),
    RouteInfo("GET", "/rooms", observe.rooms, Access.ADMIN),
    RouteInfo("GET", "/rooms/recent", observe.recent_rooms, Access.ADMIN),
    RouteInfo("POST", "/abort_request", admin.abort_request, Access.ADMIN),
    RouteInfo("GET", "/failpoints", failpoints.list_failpoints, Access.ADMIN),
    RouteInfo("POST", "/failpoints", failpoints.switch_failpoint, Access.ADMIN),
    RouteInfo("POST", "/drain", admin.drain, Access.ADMIN),
)


def make_app(service: Service) -> ASGIApp:
    """Return the application that serves all routes of `service`, metered."""
    routes = [
        Route(info.path, guarded(info.endpoint, info.access), methods=[info.method], include_in_schema=False)
        for info in ROUTES
    ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    app.state.service = service
    return MeteredApp(app, service.meters, frozenset(info.path for info in ROUTES))
