"""What the generating routes share: names of requests, and fields that must not be ignored silently."""

from __future__ import annotations

import secrets

from starlette.requests import Request

from engine.errors import RequestError
from engine.frontend.bodies import OpenAIBody

MAX_ID_LENGTH = 256


def request_id_of(request: Request, rid: str | None) -> str:
    """Return the client's id of this request (X-Request-ID, else `rid`), or a new one."""
    given = request.headers.get("x-request-id") or rid
    if given is None:
        return secrets.token_hex(16)
    if len(given) > MAX_ID_LENGTH or not given.isprintable():
        message = f"the request id must be at most {MAX_ID_LENGTH} printable characters"
        raise RequestError(400, "invalid_value", message, "rid")
    return given


def check_openai(body: OpenAIBody) -> None:
    """Raise RequestError (400) for what would change the answer's form and is not supported."""
    if body.stream_options is not None and not body.stream:
        message = "stream_options: only allowed together with stream"
        raise RequestError(400, "invalid_value", message, "stream_options")
