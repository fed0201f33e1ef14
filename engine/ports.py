"""Listening sockets, taken before anything else: a port in use costs nothing and leaves nothing behind."""

from __future__ import annotations

import errno
import socket

from engine.errors import ConfigError

BACKLOG = 2048


def listen(host: str, port: int, option: str) -> socket.socket:
    """Return a listening TCP socket. Raises ConfigError that names `option` when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"--host {host}: is no address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        # Without it a restart within a minute finds its own old connections in the way.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"{option} {port}: {_reason(error, host, port)}") from error
    return listener


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{host}:{port} is in use by another process; stop that one or choose another port"
    if error.errno == errno.EACCES:
        return "this user may not bind it; choose a port above 1023"
    return f"cannot bind {host}:{port}: {error.strerror}"
