"""GETs of many instances at once. Every one ends by its deadline, whatever the server does, and fills bounded memory.

The blocking client of `pdctl.collect.http` cannot be cut short while a server drips its headers; a task can.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from pdctl.collect.credentials import api_key
from pdctl.collect.http import Answer, Outcome, outcome_of, tls_context
from pdctl.deployment.model import Instance

if TYPE_CHECKING:
    import httpx

CONNECT_S = 2.0
BODY_MOST_BYTES = 4 << 20


class Sink(Protocol):
    """Takes a body as it comes."""

    def feed(self, piece: bytes) -> bool:
        """Take a piece; False: that was enough."""


class Buffer:
    """Keeps the first bytes of a body."""

    def __init__(self, most_bytes: int = BODY_MOST_BYTES) -> None:
        self.data = bytearray()
        self._most = most_bytes

    def feed(self, piece: bytes) -> bool:
        """Take a piece; False once there are more than wanted."""
        self.data += piece
        if len(self.data) <= self._most:
            return True
        del self.data[self._most :]
        return False


class Fetcher:
    """Owner of the connections of one collection; use it in `async with`. Proxy variables are ignored."""

    def __init__(self) -> None:
        # One an instance: httpx searches all connections of a client with each request.
        self._clients: dict[tuple[str, bool], httpx.AsyncClient] = {}
        self._no_tls: ssl.SSLContext | None = None
        self.requests = 0
        self.received_bytes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            await client.aclose()

    async def get(
        self, instance: Instance, path: str, *, deadline_s: float, base_url: str = "", sink: Sink | None = None
    ) -> Answer:
        """GET a path of an instance, or of another port of it. Raises UsageError for a bad key or ca_file."""
        url = (base_url or instance.url).rstrip("/") + path
        buffer = Buffer()
        status, headers = None, {}
        started = time.monotonic()
        outcome, words = Outcome.ANSWERED, None
        client = self._client(instance, url.startswith("https:"))
        self.requests += 1
        try:
            async with asyncio.timeout(deadline_s), client.stream("GET", url, timeout=_limits(deadline_s)) as response:
                status, headers = response.status_code, dict(response.headers)
                if not await self._drain(response, sink or buffer):
                    outcome = Outcome.TOO_LARGE
        except TimeoutError:
            outcome = Outcome.TIMEOUT
        except _network_errors() as error:
            outcome, words = outcome_of(error), str(error) or None
        return Answer(
            method="GET",
            url=url,
            outcome=outcome,
            status=status,
            body=bytes(buffer.data),
            headers=headers,
            took_ms=round((time.monotonic() - started) * 1000, 3),
            error=words,
        )

    async def _drain(self, response: httpx.Response, sink: Sink) -> bool:
        async for piece in response.aiter_bytes():
            self.received_bytes += len(piece)
            if not sink.feed(piece):
                return False
        return True

    def _client(self, instance: Instance, is_tls: bool) -> httpx.AsyncClient:
        import httpx

        key = (instance.name, is_tls)
        if key not in self._clients:
            secret = api_key(instance.api_key_file)
            # Making a context takes longer than a request; without TLS one serves all.
            self._no_tls = self._no_tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._clients[key] = httpx.AsyncClient(
                trust_env=False,
                verify=tls_context(instance.ca_file) if is_tls else self._no_tls,
                headers={
                    # Text 0.0.4 keeps the colons of metric names, and nothing can unpack to a bomb.
                    "Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.5",
                    "Accept-Encoding": "identity",
                    **({"Authorization": f"Bearer {secret}"} if secret else {}),
                },
                # No connection is kept: a server that closes an idle one would look as if it reset us.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            )
        return self._clients[key]


def _limits(deadline_s: float) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(deadline_s, connect=min(CONNECT_S, deadline_s))


def _network_errors() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.HTTPError, httpx.InvalidURL, OSError)
