"""Plain JSON answers from msgspec records."""

from __future__ import annotations

import msgspec
from starlette.responses import Response


def json_response(content: object, status: int = 200) -> Response:
    """Return `content` (a msgspec struct, or JSON-like data) as a JSON response."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")
