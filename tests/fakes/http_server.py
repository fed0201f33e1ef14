"""A real HTTP server with scripted answers, that sees whether its client leaves."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass(frozen=True)
class Reply:
    """What to answer; `body` is sent as it is when bytes, else as JSON."""

    body: object = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_length: int | None = None
    """Claims another length than the body has."""

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True)
class Request:
    """What came in, and the socket it came on."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: socket.socket

    def json(self) -> dict[str, object]:
        content = json.loads(self.body)
        assert isinstance(content, dict)
        return content

    def client_left(self, wait_s: float) -> bool:
        """Return whether the client closes its side within `wait_s` seconds."""
        readable, _, _ = select.select([self.connection], [], [], wait_s)
        if not readable:
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except ConnectionResetError:
            return True


Handler = Callable[[Request], Reply | None]
"""None: close the connection without a word."""


class FakeServer:
    """Listens on a free port of the loopback while in `with`."""

    def __init__(self, routes: Mapping[str, Handler | Reply] | None = None, port: int = 0) -> None:
        self.routes: dict[str, Handler | Reply] = dict(routes or {})
        self.requests: list[Request] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler_class())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paths(self, method: str) -> list[str]:
        """Return the paths that were asked with a method."""
        return [request.path for request in self.requests if request.method == method]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler_class(fake) -> type[BaseHTTPRequestHandler]:
        class _Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def do_GET(self) -> None:
                fake._serve(self)

            def do_POST(self) -> None:
                fake._serve(self)

        return _Handler

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(handler.command, handler.path, handler.headers, body, handler.connection)
        self.requests.append(request)
        route = self.routes.get(handler.path, Reply({"detail": "Not Found"}, 404))
        reply = route if isinstance(route, Reply) else route(request)
        if reply is None:
            handler.close_connection = True
            return
        content = reply.encoded()
        try:
            handler.send_response(reply.status)
            length = len(content) if reply.content_length is None else reply.content_length
            for name, value in {"Content-Length": str(length), **reply.headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True
        if length != len(content):
            handler.close_connection = True
