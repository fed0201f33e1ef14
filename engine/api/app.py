"""The table of routes, and the application made of it."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from engine.api import about, admin, chat, completions, failpoints, flight, generate, observe, openapi, tokens
from engine.api.access import Access, guarded
from engine.api.errors import HANDLERS
from engine.api.meters import MeteredApp
from engine.api.route_info import RouteInfo
from engine.api.service import Service
from engine.frontend.bodies import (
    AbortBody,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    FailpointBody,
    GenerateBody,
    TokenizeBody,
)
from engine.observe.records import FailpointState, Ledger, LoadReport, RoomList

ROUTES = (
    RouteInfo(
        "POST", "/v1/chat/completions", chat.chat_completions, Access.KEY, ChatBody, chat.ChatAnswer, streams=True
    ),
    RouteInfo(
        "POST",
        "/v1/completions",
        completions.completions,
        Access.KEY,
        CompletionBody,
        completions.CompletionAnswer,
        streams=True,
    ),
    RouteInfo(
        "POST",
        "/generate",
        generate.generate,
        Access.KEY,
        GenerateBody,
        generate.GenerateAnswer | list[generate.GenerateAnswer],
        streams=True,
    ),
    RouteInfo("POST", "/tokenize", tokens.tokenize, Access.KEY, TokenizeBody, tokens.Tokenized),
    RouteInfo("POST", "/detokenize", tokens.detokenize, Access.KEY, DetokenizeBody, tokens.Detokenized),
    RouteInfo("GET", "/v1/models", about.models, Access.OPEN, answer=about.ModelList),
    RouteInfo("GET", "/v1/models/{model:path}", about.model, Access.OPEN, answer=about.ModelCard),
    RouteInfo("GET", "/server_info", about.server_info, Access.OPEN, answer=about.ServerInfo),
    RouteInfo("GET", "/get_server_info", about.server_info, Access.OPEN, answer=about.ServerInfo),
    RouteInfo("GET", "/model_info", about.model_info, Access.OPEN, answer=about.ModelInfo),
    RouteInfo("GET", "/get_model_info", about.model_info, Access.OPEN, answer=about.ModelInfo),
    RouteInfo("GET", "/health", observe.health, Access.OPEN, answer=observe.Health),
    RouteInfo("GET", "/health/transfer", observe.transfer_health, Access.OPEN),
    RouteInfo("GET", "/health/live", observe.live, Access.OPEN),
    RouteInfo("GET", "/metrics", observe.metrics, Access.OPEN, media_type="text/plain"),
    RouteInfo("GET", "/v1/loads", observe.loads, Access.OPEN, answer=LoadReport),
    RouteInfo("GET", "/ledger", observe.ledger, Access.OPEN, answer=Ledger),
    RouteInfo("GET", "/rooms", observe.rooms, Access.ADMIN, answer=RoomList),
    RouteInfo("GET", "/rooms/recent", observe.recent_rooms, Access.ADMIN, answer=RoomList),
    RouteInfo("GET", "/flight", flight.flight, Access.ADMIN, media_type="application/octet-stream"),
    RouteInfo("GET", "/openapi.json", openapi.openapi, Access.OPEN),
    RouteInfo("POST", "/abort_request", admin.abort_request, Access.ADMIN, AbortBody, admin.Aborted),
    RouteInfo("GET", "/failpoints", failpoints.list_failpoints, Access.ADMIN, answer=list[FailpointState]),
    RouteInfo("POST", "/failpoints", failpoints.switch_failpoint, Access.ADMIN, FailpointBody, list[FailpointState]),
    RouteInfo("POST", "/drain", admin.drain, Access.ADMIN, answer=admin.Draining),
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
    app.state.openapi = openapi.describe(ROUTES, about.engine_version())
    return MeteredApp(app, service.meters, frozenset(info.path for info in ROUTES))
