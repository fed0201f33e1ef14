"""What the API process counts itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.observe.metrics import PREFIX
from engine.observe.records import Sample


@dataclass(slots=True)
class Meters:
    """Counters of one API process; written by its event loop only."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    in_flight: int = 0
    generations: Counter[bool] = field(default_factory=Counter)
    clients_left: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    def generation_started(self, stream: bool) -> None:
        self.generations[stream] += 1
        self._idle.clear()

    def generation_ended(self, stream: bool) -> None:
        self.generations[stream] -= 1
        if not self.generations.total():
            self._idle.set()

    async def until_idle(self) -> None:
        """Wait until no generating request is being answered."""
        await self._idle.wait()

    def client_left(self) -> None:
        self.clients_left += 1

    def samples(self) -> list[Sample]:
        """Return the counts as samples."""
        samples = [
            Sample(PREFIX + "http_requests_total", count, {"path": path, "status": str(status)})
            for (path, status), count in sorted(self.requests.items())
        ]
        samples += [
            Sample(PREFIX + "http_generations", self.generations[stream], {"stream": str(stream).lower()})
            for stream in (False, True)
        ]
        samples.append(Sample(PREFIX + "http_in_flight", self.in_flight))
        samples.append(Sample(PREFIX + "http_clients_left_total", self.clients_left))
        return samples


class MeteredApp:
    """Counts requests by path and status. Paths that are no route share a label: nobody can add series."""

    def __init__(self, app: ASGIApp, meters: Meters, paths: frozenset[str]) -> None:
        self._app = app
        self._meters = meters
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._meters.in_flight += 1
        try:
            await self._app(scope, receive, observed)
        finally:
            self._meters.in_flight -= 1
            path = scope["path"] if scope["path"] in self._paths else "other"
            # 0: the client left before an answer.
            self._meters.requests[path, status] += 1
