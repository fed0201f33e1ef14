"""GETs of many instances at once. Every one ends by its deadline, whatever the server does, and fills bounded memory.

The blocking client of `pdctl.collect.http` cannot be cut short while a server drips its headers; a task can. Plain
asyncio and h11 (which httpx stands on): of hundreds of instances a request costs 0.3 ms of CPU, by httpx 1.7 ms.

An engine of another host that listens on the loopback there is asked through that host.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Protocol
from urllib.parse import urlsplit

import h11

from pdctl.collect.credentials import api_key
from pdctl.collect.http import Answer, Outcome, tls_context
from pdctl.deployment import layout
from pdctl.deployment.model import Instance
from pdctl.hosts.child import End
from pdctl.hosts.host import LOCAL
from pdctl.hosts.hosts import Hosts
from pdctl.hosts.remote import RemoteHost

BODY_MOST_BYTES = 4 << 20
HEAD_MOST_BYTES = 64 << 10
READ_BYTES = 256 << 10
FAR_S = 30.0
"""For what goes through another host; whoever asks waits less, and what is not waited for is ended there."""
THROUGH_MOST_BYTES = 16 << 20
"""Of an answer that comes through another host, which is passed on as a whole."""


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
    """Knows keys and certificates of one collection, and counts what was sent. Proxy variables are ignored."""

    def __init__(self, hosts: Hosts | None = None) -> None:
        """Ask through `hosts` what listens on the loopback of another one; without them nothing is."""
        self._hosts = hosts
        self._headers: dict[str | None, list[tuple[str, str]]] = {}
        self._contexts: dict[str | None, ssl.SSLContext] = {}
        self._limits_s: dict[str, float] = {}
        self._waits: dict[str, set[asyncio.Timeout]] = {}
        self.requests = 0
        self.received_bytes = 0

    def hurry(self, instance: str, limit_s: float | None) -> None:
        """Wait at most `limit_s` more for what an instance owes, and so long for what it is asked from now on.

        None: as long as the caller of `get` allows, as at first.
        """
        if limit_s is None:
            self._limits_s.pop(instance, None)
            return
        self._limits_s[instance] = limit_s
        ends_at = asyncio.get_running_loop().time() + limit_s
        for waiting in self._waits.get(instance, ()):
            if not waiting.expired() and ends_at < (waiting.when() or float("inf")):
                waiting.reschedule(ends_at)

    async def get(
        self, instance: Instance, path: str, *, deadline_s: float, base_url: str = "", sink: Sink | None = None
    ) -> Answer:
        """GET a path of an instance, or of another port of it. Raises UsageError for a bad key or ca_file."""
        url = (base_url or instance.url).rstrip("/") + path
        exchange = _Exchange(url, self._headers_of(instance), self._context_of(instance, url), sink or Buffer())
        outcome, words = Outcome.ANSWERED, None
        self.requests += 1
        started = time.monotonic()
        try:
            async with asyncio.timeout(min(deadline_s, self._limits_s.get(instance.name, deadline_s))) as waiting:
                with self._known(instance.name, waiting):
                    if not await exchange.run(self._way_to(instance, url)):
                        outcome = Outcome.TOO_LARGE
        except (OSError, h11.RemoteProtocolError, ValueError) as error:
            # asyncio's TimeoutError is an OSError too.
            outcome, words = _outcome_of(error, exchange.has_ended), str(error) or None
        self.received_bytes += exchange.received_bytes
        return Answer(
            method="GET",
            url=url,
            outcome=outcome,
            status=exchange.status,
            body=bytes(exchange.sink.data) if isinstance(exchange.sink, Buffer) else b"",
            headers=exchange.headers,
            took_ms=round((time.monotonic() - started) * 1000, 3),
            error=words,
        )

    def _way_to(self, instance: Instance, url: str) -> RemoteHost | None:
        """Return the host through which an instance is asked, None where it is reached from here."""
        is_far = instance.host != LOCAL and urlsplit(url).hostname in layout.LOOPBACK
        return self._hosts.remote(instance.host) if is_far and self._hosts is not None else None

    @contextlib.contextmanager
    def _known(self, instance: str, waiting: asyncio.Timeout) -> Iterator[None]:
        """Let `hurry` know of a wait while it lasts."""
        self._waits.setdefault(instance, set()).add(waiting)
        try:
            yield
        finally:
            self._waits[instance].discard(waiting)

    def _headers_of(self, instance: Instance) -> list[tuple[str, str]]:
        if instance.api_key_file not in self._headers:
            key = api_key(instance.api_key_file)
            self._headers[instance.api_key_file] = [
                # Text 0.0.4 keeps the colons of metric names, and nothing can unpack to a bomb.
                ("Accept", "text/plain;version=0.0.4;q=1,*/*;q=0.5"),
                ("Accept-Encoding", "identity"),
                ("User-Agent", "pdctl"),
                # No connection is kept: a server that closes an idle one would look as if it reset us.
                ("Connection", "close"),
                *([("Authorization", f"Bearer {key}")] if key else []),
            ]
        return self._headers[instance.api_key_file]

    def _context_of(self, instance: Instance, url: str) -> ssl.SSLContext | None:
        if not url.startswith("https:"):
            return None
        if instance.ca_file not in self._contexts:
            self._contexts[instance.ca_file] = tls_context(instance.ca_file)
        return self._contexts[instance.ca_file]


class _Exchange:
    """One request and its answer, on a connection of its own."""

    def __init__(self, url: str, headers: list[tuple[str, str]], tls: ssl.SSLContext | None, sink: Sink) -> None:
        self._parts = urlsplit(url)
        self._sent_headers = headers
        self._tls = tls
        self.sink = sink
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.received_bytes = 0
        self.has_ended = False
        """Whether the server has closed its side."""

    async def run(self, through: RemoteHost | None = None) -> bool:
        """Return whether the whole answer was wanted. Raises OSError, h11.RemoteProtocolError, ValueError."""
        wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MOST_BYTES)
        port = self._parts.port or (443 if self._tls else 80)
        if through is not None:
            return await self._run_through(through, wire, port)
        reader, writer = await asyncio.open_connection(self._parts.hostname, port, ssl=self._tls)
        try:
            writer.write(self._request(wire))
            return await self._receive(wire, reader)
        finally:
            # Never waits, neither for what is unsent nor for TLS to say goodbye.
            writer.transport.abort()

    async def _run_through(self, host: RemoteHost, wire: h11.Connection, port: int) -> bool:
        if self._tls is not None:
            raise OSError(f"no TLS is spoken through {host.name}: give it a url that is reached from here")
        done = await host.exchange(
            self._parts.hostname or "",
            port,
            self._request(wire),
            deadline_s=FAR_S,
            most_bytes=THROUGH_MOST_BYTES,
        )
        if done.end is End.UNREACHABLE:
            raise OSError(done.stderr)
        if done.end is End.TIMEOUT:
            raise TimeoutError(done.stderr)
        if done.code:
            raise OSError(done.code, done.stderr)
        reader = asyncio.StreamReader()
        reader.feed_data(done.stdout)
        reader.feed_eof()
        return await self._receive(wire, reader)

    def _request(self, wire: h11.Connection) -> bytes:
        target = self._parts.path + (f"?{self._parts.query}" if self._parts.query else "")
        headers = [("Host", self._parts.netloc), *self._sent_headers]
        request = wire.send(h11.Request(method="GET", target=target or "/", headers=headers))
        return (request or b"") + (wire.send(h11.EndOfMessage()) or b"")

    async def _receive(self, wire: h11.Connection, reader: asyncio.StreamReader) -> bool:
        while True:
            event = wire.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(READ_BYTES)
                self.has_ended = not data
                self.received_bytes += len(data)
                wire.receive_data(data)
            elif isinstance(event, h11.Response):
                self.status = event.status_code
                self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                if not self.sink.feed(bytes(event.data)):
                    return False
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                return True


def _outcome_of(error: Exception, has_ended: bool) -> Outcome:
    """Return the outcome behind an exception; the same words as `pdctl.collect.http`."""
    for kind, outcome in (
        (TimeoutError, Outcome.TIMEOUT),
        (ConnectionRefusedError, Outcome.REFUSED),
        (socket.gaierror, Outcome.DNS),
        (ssl.SSLError, Outcome.TLS),
        (ConnectionError, Outcome.RESET),
    ):
        if isinstance(error, kind):
            return outcome
    if isinstance(error, OSError):
        # Of a name with several addresses asyncio tells all refusals in one plain OSError.
        return Outcome.REFUSED if "Connect call failed" in str(error) else Outcome.UNREACHABLE
    return Outcome.RESET if has_ended else Outcome.GARBLED
