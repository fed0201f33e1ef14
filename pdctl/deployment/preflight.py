"""What must hold before anything is started."""

from __future__ import annotations

import errno
import importlib.util
import socket
import sys
from collections.abc import Iterable

from pdctl.deployment import layout
from pdctl.deployment.model import Instance
from pdctl.errors import PdctlError

ENGINE_MODULES = ("torch", "zmq", "starlette", "uvicorn", "tokenizers", "gguf")
NIXL_MODULES = ("nixl_cu12", "nixl_cu13")
"""One of them: NIXL comes by the name of a CUDA version, also where there is no GPU."""


def check_engine_extra(instances: Iterable[Instance]) -> None:
    """Raise PdctlError unless this interpreter has what our engine and router import. Imports none of it."""
    ours = [instance for instance in instances if instance.start and instance.start[0] == sys.executable]
    dialects = {instance.dialect for instance in ours}
    missing = []
    if "pdctl" in dialects:
        missing += [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]
        if all(importlib.util.find_spec(name) is None for name in NIXL_MODULES):
            missing.append("nixl")
    if "smg" in dialects and importlib.util.find_spec("smg") is None:
        missing.append("smg")
    if missing:
        raise PdctlError(
            f"the engine is not installed in {sys.prefix}: no {', '.join(missing)}",
            "pip install '.[engine]'   (pdctl alone does not bring torch)",
        )


def check_ports(instances: Iterable[Instance]) -> None:
    """Raise PdctlError naming each port that is taken and the process that holds it."""
    taken = []
    for instance in instances:
        host = layout.host_and_port(instance.url)[0]
        taken += [
            f"port {port} ({instance.name}) is taken by {_holder(port)}"
            for port in layout.ports_of(instance)
            if not _is_free(host, port)
        ]
    if taken:
        raise PdctlError("; ".join(taken), "stop that process, or choose other ports: --port-base 31000")


def _is_free(host: str, port: int) -> bool:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listener:
            # A port whose last connections are in TIME_WAIT is free for a server.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise PdctlError(f"cannot listen on {host}:{port}: {error}", "correct the url in pd.toml") from error
    return True


def _holder(port: int) -> str:
    # 25 ms of CPU, needed for this message only. Its types are in another package.
    import psutil

    try:
        connections = [c for c in psutil.net_connections(kind="tcp") if c.laddr and c.laddr.port == port]
    except psutil.Error:
        connections = []
    for connection in connections:
        if connection.pid:
            try:
                words = psutil.Process(connection.pid).cmdline()
            except psutil.Error:
                words = []
            command = " ".join(words)[:100] or "unknown command"
            return f"pid {connection.pid}: {command}"
    if any(connection.status == psutil.CONN_TIME_WAIT for connection in connections):
        return "a closed connection, for at most a minute (clients take ports of this range: choose lower ones)"
    return "a process of another user"
