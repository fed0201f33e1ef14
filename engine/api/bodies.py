"""Reading a request's body, within a limit."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from engine.errors import RequestError
from engine.frontend.generation import ClientGone

MAX_BODY_BYTES = 16 << 20


async def raw_body(request: Request, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Return the whole body. Raises RequestError (413) as soon as it is too large, and ClientGone."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit_bytes:
                raise _too_large(limit_bytes)
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ClientGone from error
    return b"".join(chunks)


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(413, "body_too_large", f"the body is larger than {limit_bytes >> 20} MiB")
