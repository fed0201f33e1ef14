"""One generating request on its way through: submit, watch the client, answer whole or as a stream of events.

Four rules make the router behave (measured with smg 1.13.0). Here: (1) response headers are held back until
the first result, which on decode and unified is the first token, on prefill the end of the leg (COMMITTED);
(2) once they are out, an SSE comment is written whenever nothing else was for `HEARTBEAT_S`; (4) every wait
has a deadline (`Generation`). Rule 3 is in `engine.api.errors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.api.errors import error_body, error_response
from engine.api.responses import json_response
from engine.api.service import Service
from engine.config import Role
from engine.errors import RequestError
from engine.frontend.generation import ClientGone, Generation, Work
from engine.frontend.sequence import Piece

HEARTBEAT_S = 0.2
"""smg notices a dropped client only when it forwards something; the rule asks for 250 ms at most."""

HEARTBEAT = b": hb\n\n"
DONE = b"data: [DONE]\n\n"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Dialect(Protocol):
    """How one route writes its answers."""

    def opening(self) -> Iterable[object]:
        """Return the events before the first piece."""

    def events(self, piece: Piece) -> Iterable[object]:
        """Return the events that a piece becomes."""

    def closing(self) -> Iterable[object]:
        """Return the events after the last piece."""

    def whole(self, pieces: list[Piece]) -> object:
        """Return the body of an answer that is not streamed, from all pieces in the order they came."""


class Answer(Response):
    """A response that does its work when it is sent, so that the client is watched from the first moment."""

    def __init__(self, service: Service, work: Work, dialect: Dialect) -> None:
        self._service = service
        self._work = work
        self._dialect = dialect
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Generate and answer. Errors before the first result get a status, later ones an event."""
        service = self._service
        deadline_s = service.config.request_timeout_s
        generation = Generation(self._work, service.client, service.tokenizer, service.clock, deadline_s)
        watch = asyncio.create_task(_watch(receive, generation))
        service.meters.generation_started(self._work.stream)
        try:
            await self._answer(generation, scope, receive, send)
        except ClientGone:
            service.meters.client_left()
        finally:
            watch.cancel()
            service.meters.generation_ended(self._work.stream)
            generation.close("answer ended early")

    async def _answer(self, generation: Generation, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            generation.submit()
            held = await self._held_back(generation)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return
        if self._work.stream:
            await self._stream(generation, held, send)
        else:
            await json_response(self._dialect.whole(held))(scope, receive, send)

    async def _held_back(self, generation: Generation) -> list[Piece]:
        """Return the pieces that must be there before the headers go out."""
        pieces = [await generation.take()]
        if not self._work.stream or self._service.config.role is Role.PREFILL:
            while generation.unfinished:
                pieces.append(await generation.take())
        return pieces

    async def _stream(self, generation: Generation, held: list[Piece], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        await _write(send, self._dialect.opening())
        try:
            for piece in held:
                await _write(send, self._dialect.events(piece))
            while generation.unfinished:
                next_piece = await generation.next(HEARTBEAT_S)
                await _write(send, self._dialect.events(next_piece) if next_piece else ())
            await _write(send, self._dialect.closing())
            await _end(send, DONE)
        except RequestError as error:
            # No [DONE] here: a client that looks for nothing else must not take this for success.
            await _end(send, _framed([error_body(error)]))


async def _watch(receive: Receive, generation: Generation) -> None:
    """Wait until the client closes its connection, then end the generation."""
    while (await receive())["type"] != "http.disconnect":
        pass
    generation.leave()


def _framed(events: Iterable[object]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)


async def _write(send: Send, events: Iterable[object]) -> None:
    """Send events; a comment in place of none, so that the router looks whether its client is still there."""
    await send({"type": "http.response.body", "body": _framed(events) or HEARTBEAT, "more_body": True})


async def _end(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": False})
