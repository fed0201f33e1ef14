"""Streams as a client sees them: events that came, and connections that break when a test wants it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def events(response: Any) -> list[Any]:
    """Return the data events of a whole stream, comments left out."""
    frames = [frame for frame in response.text.split("\n\n") if frame.startswith("data: ")]
    return [frame[6:] if frame == "data: [DONE]" else json.loads(frame[6:]) for frame in frames]


@contextmanager
def raw_post(port: int, path: str, body: object, request_id: str) -> Iterator[socket.socket]:
    """Send a request over a bare socket, so that the test decides when the connection closes."""
    raw = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Request-ID: {request_id}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + raw)
        yield connection
