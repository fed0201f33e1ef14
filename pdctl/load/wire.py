"""One streamed POST over a connection of its own: cheap enough that one core holds a thousand."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import h11
import msgspec

from pdctl.load.reply import Outcome, Reply, is_token, read_events

BUSY = (429, 503)
ERROR_KEPT_BYTES = 300


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go."""

    url: str
    """`http://host:port`, without a trailing slash."""
    model: str
    key: str | None = None
    tls: ssl.SSLContext | None = None


class Post(asyncio.Protocol):
    """The exchange. Await `ended`; `leave` closes it as a client that dies does."""

    def __init__(self, endpoint: Endpoint, path: str, body: object) -> None:
        parts = urlsplit(endpoint.url)
        content = msgspec.json.encode(body)
        headers = {"Host": parts.netloc, "Content-Type": "application/json", "Content-Length": str(len(content))}
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        self._http = h11.Connection(h11.CLIENT)
        self._request = self._packed(f"{parts.path}{path}", headers, content)
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._events: list[bytes] = []
        self._body: list[bytes] = []
        self._first_at: float | None = None
        self._status: int | None = None
        self._is_stream = False
        self._is_whole = False
        self._why: Outcome | None = None
        self._sent_at = time.monotonic()
        self.ended: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    @property
    def body(self) -> bytes:
        """Return the body of an answer that is no stream, as far as it came."""
        return b"".join(self._body)

    def leave(self, why: Outcome) -> None:
        """Close at once, without a word to the server."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()
        self._finish()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sent_at = time.monotonic()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError:
            self.leave(Outcome.BROKEN)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _packed(self, target: str, headers: Mapping[str, str], content: bytes) -> bytes:
        request = h11.Request(method="POST", target=target, headers=list(headers.items()))
        pieces = (self._http.send(request), self._http.send(h11.Data(content)), self._http.send(h11.EndOfMessage()))
        return b"".join(piece for piece in pieces if piece)

    def _take(self, event: object) -> bool:
        """Take one event of the connection; return whether there may be another."""
        if isinstance(event, h11.Response):
            self._status = event.status_code
            self._is_stream = any(b"event-stream" in value for name, value in event.headers if name == b"content-type")
        elif isinstance(event, h11.Data):
            self._read(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._is_whole = True
            if self._transport is not None:
                self._transport.close()
            self._finish()
            return False
        return event is not h11.NEED_DATA and event is not h11.PAUSED

    def _read(self, data: bytes) -> None:
        if not self._is_stream:
            self._body.append(data)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            if self._first_at is None and is_token(line):
                self._first_at = time.monotonic()
            self._events.append(line)

    def _finish(self) -> None:
        if self.ended.done():
            return
        read = read_events(self._events)
        outcome, problem = self._judged(read.is_done, read.problem)
        self.ended.set_result(
            Reply(
                outcome=outcome,
                took_s=time.monotonic() - self._sent_at,
                status=self._status,
                ttft_s=None if self._first_at is None else self._first_at - self._sent_at,
                tokens=read.tokens,
                text=read.text,
                calls=read.calls,
                problem=problem,
            )
        )

    def _judged(self, is_done: bool, problem: str | None) -> tuple[Outcome, str | None]:
        if self._why is not None:
            return (
                self._why,
                f"no end after {time.monotonic() - self._sent_at:.1f} s" if self._why is Outcome.TIMEOUT else None,
            )
        if self._status is None:
            return Outcome.BROKEN, "the connection ended before any answer"
        if self._status >= 400:
            kind = Outcome.REFUSED if self._status in BUSY else Outcome.HTTP_ERROR
            said = problem or self.body[:ERROR_KEPT_BYTES].decode("utf-8", "replace")
            return kind, f"HTTP {self._status}: {said}"
        if problem is not None:
            return Outcome.STREAM_ERROR, problem
        if not self._is_whole or (self._is_stream and not is_done):
            return Outcome.BROKEN, "the stream ended before its [DONE]"
        return Outcome.OK, None


async def open_post(endpoint: Endpoint, path: str, body: object) -> Post:
    """Connect and send. Raises OSError where nobody listens."""
    parts = urlsplit(endpoint.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    _, post = await loop.create_connection(
        lambda: Post(endpoint, path, body),
        parts.hostname or "",
        port,
        ssl=endpoint.tls if parts.scheme == "https" else None,
    )
    return post
