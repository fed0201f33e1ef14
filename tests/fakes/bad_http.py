"""A real server on loopback that answers as no server should: endless, dripping, hung, resetting, half."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Self

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"

Behaviour = Callable[[socket.socket, threading.Event], None]


def hang(connection: socket.socket, stop: threading.Event) -> None:
    """Accept and say nothing."""
    stop.wait()


def drip_headers(connection: socket.socket, stop: threading.Event) -> None:
    """Send one byte of an endless header at a time: no read ever times out."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
    while not stop.wait(0.05):
        connection.sendall(b"x")


def endless(line: bytes) -> Behaviour:
    """Send the same bytes for ever."""

    def send(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(OK)
        block = line * max(1, 65536 // len(line))
        while not stop.is_set():
            connection.sendall(block)

    return send


def whole(body: bytes, status: bytes = b"200 OK") -> Behaviour:
    """Send a body and close."""

    def send(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(OK.replace(b"200 OK", status) + body)

    return send


def half(body: bytes) -> Behaviour:
    """Promise more than is sent."""

    def send(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(OK.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % (len(body) * 2)) + body)

    return send


def not_found(connection: socket.socket, stop: threading.Event) -> None:
    """Answer 404."""
    whole(b"", b"404 Not Found")(connection, stop)


def reset(connection: socket.socket, stop: threading.Event) -> None:
    """Break the connection off."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class BadServer:
    """Listens while in `with`; a path that is not listed does what `otherwise` says."""

    def __init__(self, routes: Mapping[str, Behaviour], otherwise: Behaviour = hang) -> None:
        self._routes = dict(routes)
        self._otherwise = otherwise
        self._stop = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                request = connection.recv(65536)
                path = request.split(b" ")[1].decode() if b" " in request else ""
                self._routes.get(path, self._otherwise)(connection, self._stop)
            except OSError:
                return
