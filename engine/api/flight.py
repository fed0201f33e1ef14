"""GET /flight: the flight recorder, read from its file, so also while the scheduler hangs.

Without a parameter the file itself, whose layout stands in `engine.observe.flight_format`, as pdctl keeps it;
with `?last=N` the newest N records as JSON, for people. `?rank=N` asks for another rank's than 0.
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
from engine.observe.flight import rank_file
from engine.observe.flight_format import NotAFlightFile, read_flight


async def flight(request: Request) -> Response:
    """Return the ring, or its newest `?last=N` records, oldest first."""
    last, rank = _number(request, "last"), _number(request, "rank") or 0
    config = service_of(request).config
    if config.flight_file is None or rank >= config.tp:
        raise RequestError(
            404, "no_flight", f"this instance of {config.tp} ranks has no flight recorder of rank {rank}"
        )
    path = rank_file(Path(config.flight_file), rank)
    try:
        data = await asyncio.to_thread(path.read_bytes)
        if last is None:
            return Response(data, media_type="application/octet-stream")
        found = read_flight(data)
    except (OSError, NotAFlightFile) as error:
        raise RequestError(503, "no_flight", f"the flight recorder at {path} cannot be read: {error}") from error
    newest = found.records[max(len(found.records) - last, 0) :]
    return json_response(asdict(found) | {"file": str(path), "records": [asdict(record) for record in newest]})


def _number(request: Request, name: str) -> int | None:
    given = request.query_params.get(name)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit()):
        raise RequestError(400, "invalid_value", f"{name} must be a whole number, not {given!r}", name)
    return int(given)
