"""GET /flight: the flight recorder, read from its file, so also while the scheduler hangs.

Without a parameter the file itself, whose layout stands in `engine.observe.flight_format`, as pdctl keeps it;
with `?last=N` the newest N records as JSON, for people.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from engine.api.responses import json_response
from engine.api.service import service_of
from engine.errors import RequestError
from engine.observe.flight_format import NotAFlightFile, read_flight


async def flight(request: Request) -> Response:
    """Return the ring, or its newest `?last=N` records, oldest first."""
    last = request.query_params.get("last")
    if last is not None and not last.isdigit():
        raise RequestError(400, "invalid_value", f"last must be a whole number, not {last!r}", "last")
    path = service_of(request).config.flight_file
    if path is None:
        raise RequestError(404, "no_flight", "this instance has no flight recorder")
    try:
        data = await asyncio.to_thread(Path(path).read_bytes)
        if last is None:
            return Response(data, media_type="application/octet-stream")
        found = read_flight(data)
    except (OSError, NotAFlightFile) as error:
        raise RequestError(503, "no_flight", f"the flight recorder at {path} cannot be read: {error}") from error
    newest = found.records[max(len(found.records) - int(last), 0) :]
    return json_response(asdict(found) | {"file": path, "records": [asdict(record) for record in newest]})
