"""Errors as the OpenAI API writes them, and in a way that survives the router.

smg 1.13.0 passes on 400, 404, 500, 502 and 503 only, and keeps a worker's Content-Length on a body that it
rewrites when the client streams: so errors are sent chunked.
"""

from __future__ import annotations

import logging

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from engine.api.responses import json_response
from engine.errors import RequestError
from engine.frontend.generation import ClientGone
from engine.frontend.observer_client import SchedulerSilent

log = logging.getLogger(__name__)


class ErrorDetail(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorDetail


def error_body(error: RequestError) -> ErrorBody:
    """Return the OpenAI-shaped body of an error."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    kind = "authentication_error" if error.status in (401, 403) else kind
    return ErrorBody(ErrorDetail(error.message, kind, error.param, error.code))


def error_response(error: RequestError) -> Response:
    """Return the response to a refused request: JSON, chunked."""
    response = json_response(error_body(error), error.status)
    del response.headers["content-length"]
    return response


async def on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error)


async def on_silence(request: Request, error: Exception) -> Response:
    """Answer for an observer that does not."""
    return error_response(RequestError(503, "scheduler_silent", f"{error}; see /health"))


async def on_client_gone(request: Request, error: Exception) -> Response:
    """Answer nobody: the client left while its body was read."""
    return error_response(RequestError(400, "client_gone", "the client closed the connection"))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer for paths and methods that do not exist."""
    assert isinstance(error, HTTPException)
    code = {404: "unknown_path", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    message = f"{request.method} {request.url.path}: {error.detail}"
    return error_response(RequestError(error.status_code, code, message))


async def on_deep_nesting(request: Request, error: Exception) -> Response:
    """Answer for a body that can be read and is nested more deeply than one of its later readers goes."""
    return error_response(RequestError(400, "invalid_value", "the body is nested too deeply"))


async def on_bug(request: Request, error: Exception) -> Response:
    """Answer for what should not happen; starlette logs the traceback."""
    message = f"internal error: {type(error).__name__}; the traceback is in this instance's log"
    return error_response(RequestError(500, "internal_error", message))


HANDLERS = {
    RequestError: on_request_error,
    SchedulerSilent: on_silence,
    ClientGone: on_client_gone,
    HTTPException: on_http_exception,
    RecursionError: on_deep_nesting,
    Exception: on_bug,
}
