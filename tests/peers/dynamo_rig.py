"""NVIDIA Dynamo's frontend with two mock engines, as real processes: real discovery, real planes, no GPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.peers.pythons import python_of
from tests.peers.servers import Server, is_open, low_ports
from tests.waiting import eventually

_PLANES = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")


@dataclass(frozen=True)
class Dynamo:
    """A running frontend with one prefill and one decode."""

    frontend: Server
    prefill: Server
    decode: Server

    @property
    def servers(self) -> tuple[Server, ...]:
        return self.prefill, self.decode, self.frontend

    def ask(self) -> int:
        """Send one request and return its status."""
        body = {"model": "mock", "messages": [{"role": "user", "content": os.urandom(8).hex()}], "max_tokens": 8}
        url = f"{self.frontend.url}/v1/chat/completions"
        return httpx.post(url, json=body, timeout=20, trust_env=False).status_code


@contextlib.contextmanager
def dynamo(model: Path, folder: Path) -> Iterator[Dynamo]:
    """Start the three processes, wait until a request passes, and kill them at the end, stopped or not."""
    common = {"HF_HUB_OFFLINE": "1", "DYN_FILE_KV": str(folder / "kv"), "DYN_TCP_RPC_HOST": "127.0.0.1"}
    running: list[Server] = []

    def start(name: str, port: int, *words: str, **more: str) -> Server:
        argv = [str(python_of("dynamo")), "-m", *words, *_PLANES]
        server = Server(name, f"http://127.0.0.1:{port}", argv, folder / f"{name}.log", {**common, **more})
        running.append(server)
        server.start()
        eventually(lambda: is_open(server.url), 120)
        return server

    mocker = ("dynamo.mocker", "--model-path", str(model), "--model-name", "mock", "--disaggregation-mode")
    try:
        # Dynamo reads DYN_SYSTEM_PORT as a signed 16-bit number.
        port, other, web_port, bootstrap_port = low_ports(4)
        bootstrap = ("--bootstrap-ports", str(bootstrap_port))
        prefill = start("prefill", port, *mocker, "prefill", *bootstrap, DYN_SYSTEM_PORT=str(port))
        decode = start("decode", other, *mocker, "decode", DYN_SYSTEM_PORT=str(other))
        web = ("--http-host", "127.0.0.1", "--http-port", str(web_port))
        made = Dynamo(start("frontend", web_port, "dynamo.frontend", *web), prefill, decode)
        eventually(lambda: _passes(made), 90)
        yield made
    finally:
        for server in running:
            server.kill()


def _passes(made: Dynamo) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return made.ask() == 200
    return False
