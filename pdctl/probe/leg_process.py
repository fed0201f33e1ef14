"""Send one request and read its answer to the end, in a process that nobody waits for.

Run as a file (`python -I -S leg_process.py`): it imports the standard library only and starts fast.
The request comes as JSON on stdin; what happens goes as JSON lines to stdout:
    {"event": "start", "at": UNIX, "pid": PID}
    {"event": "sent", "at": UNIX}
    {"event": "head", "at": UNIX, "status": 200}
    {"event": "first", "at": UNIX}                  first byte of the body
    {"event": "end", "at": UNIX, "outcome": WORD, "body": BASE64, "error": TEXT}

It belongs to a session of its own and to init, and ignores that its reader is gone: on some engines a client
that disconnects kills the transfer path for everybody. So the connection lives until the engine ends it, or
`hold_s` is over. Descriptors that it inherited (the locks of the pair) stay open, and locked, until then.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import socket
import ssl
import sys
import time
from typing import Any
from urllib.parse import urlsplit

OUTCOMES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((ConnectionRefusedError,), "refused"),
    ((socket.gaierror,), "dns"),
    ((ssl.SSLError,), "tls"),
    ((TimeoutError,), "timeout"),
    ((ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected), "reset"),
    ((http.client.IncompleteRead,), "reset"),
    ((http.client.HTTPException,), "garbled"),
    ((OSError,), "unreachable"),
)


def main() -> None:
    """Detach, send, and read until the end."""
    request = json.load(sys.stdin)
    _detach()
    _report("start", pid=os.getpid())
    try:
        body = _exchange(request)
        _report("end", outcome="answered", body=base64.b64encode(body).decode())
    except (OSError, http.client.HTTPException) as error:
        word = next(word for kinds, word in OUTCOMES if isinstance(error, kinds))
        _report("end", outcome=word, error=f"{type(error).__name__}: {error}")


def _detach() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 2):
        os.dup2(nothing, descriptor)


def _exchange(request: dict[str, Any]) -> bytes:
    deadline = time.monotonic() + request["hold_s"]
    url = urlsplit(request["url"])
    connection = _connect(url.scheme, url.hostname or "", url.port, request)
    # Stamped before: afterwards this process may have to wait for a core while the engine is at work already.
    sent_at = time.time()
    connection.request("POST", url.path, request["body"].encode(), request["headers"])
    _report("sent", at=sent_at)
    _wait_at_most(connection, deadline)
    response = connection.getresponse()
    _report("head", status=response.status)
    return _read(connection, response, deadline, request["max_body_bytes"])


def _connect(scheme: str, host: str, port: int | None, request: dict[str, Any]) -> http.client.HTTPConnection:
    connection: http.client.HTTPConnection
    if scheme == "https":
        context = ssl.create_default_context(cafile=request["ca_file"])
        connection = http.client.HTTPSConnection(host, port, timeout=request["connect_s"], context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=request["connect_s"])
    connection.connect()
    # A host that vanished sends nothing more; keepalive ends the wait before `hold_s` does.
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


def _read(
    connection: http.client.HTTPConnection,
    response: http.client.HTTPResponse,
    deadline: float,
    max_body_bytes: int,
) -> bytes:
    """Read to the end. What is over the bound is read and dropped: to stop reading would be a disconnect."""
    body = bytearray()
    while True:
        _wait_at_most(connection, deadline)
        piece = response.read1(65536)
        if not piece:
            if response.length:
                raise http.client.IncompleteRead(bytes(body), response.length)
            return bytes(body)
        if not body:
            _report("first")
        body += piece[: max_body_bytes - len(body)]


def _wait_at_most(connection: http.client.HTTPConnection, deadline: float) -> None:
    if connection.sock is not None:
        connection.sock.settimeout(max(0.001, deadline - time.monotonic()))


def _report(event: str, **more: object) -> None:
    line = json.dumps({"event": event, "at": time.time()} | more) + "\n"
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except OSError:
        # The reader is gone: that is what this process is for.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    main()
