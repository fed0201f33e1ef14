"""GET /flight: the newest records of the flight recorder, read from its file, so also while the scheduler hangs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from engine.api.responses import json_response
from engine.api.service import service_of
from engine.errors import RequestError
from engine.observe.flight_format import Flight, NotAFlightFile, read_flight

DEFAULT_LAST = 500


async def flight(request: Request) -> Response:
    """Return the newest `?last=N` records (500), oldest first."""
    last = request.query_params.get("last", str(DEFAULT_LAST))
    if not last.isdigit():
        raise RequestError(400, "invalid_value", f"last must be a whole number, not {last!r}", "last")
    path = service_of(request).config.flight_file
    if path is None:
        raise RequestError(404, "no_flight", "this instance has no flight recorder")
    found = await asyncio.to_thread(_read, Path(path))
    newest = found.records[max(len(found.records) - int(last), 0) :]
    return json_response(asdict(found) | {"file": path, "records": [asdict(record) for record in newest]})


def _read(path: Path) -> Flight:
    try:
        return read_flight(path.read_bytes())
    except (OSError, NotAFlightFile) as error:
        raise RequestError(503, "no_flight", f"the flight recorder at {path} cannot be read: {error}") from error
