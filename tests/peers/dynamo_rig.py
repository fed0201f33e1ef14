"""NVIDIA Dynamo's frontend with two mock engines, as real processes: real discovery, real planes, no GPU.

`PDCTL_PEER_DYNAMO` names the Python of a virtual environment with ai-dynamo 1.6.1 (CONTRIBUTING.md: how to make it).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.waiting import eventually

PYTHON = os.environ.get("PDCTL_PEER_DYNAMO", "")
needs_dynamo = pytest.mark.skipif(not PYTHON, reason="PDCTL_PEER_DYNAMO names no Python with ai-dynamo")
_PLANES = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")
_HIGHEST_SYSTEM_PORT = 32767
"""Dynamo reads DYN_SYSTEM_PORT as a signed 16-bit number."""


@dataclass(frozen=True)
class Dynamo:
    """A running frontend with one prefill and one decode."""

    url: str
    prefill: subprocess.Popen[bytes]
    decode: subprocess.Popen[bytes]
    prefill_url: str
    decode_url: str

    def ask(self) -> int:
        """Send one request and return its status."""
        body = {"model": "mock", "messages": [{"role": "user", "content": os.urandom(8).hex()}], "max_tokens": 8}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=20, trust_env=False).status_code


def _system_port() -> int:
    for port in range(_HIGHEST_SYSTEM_PORT, 20_000, -1):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port below 32768 is free")


@contextlib.contextmanager
def dynamo(model: Path, folder: Path) -> Iterator[Dynamo]:
    """Start the three processes, wait until a request passes, and kill them at the end, stopped or not."""
    common = {**os.environ, "HF_HUB_OFFLINE": "1", "DYN_FILE_KV": str(folder / "kv"), "DYN_TCP_RPC_HOST": "127.0.0.1"}
    common.pop("PYTHONPATH", None)
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str, **more: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [PYTHON, "-m", *words, *_PLANES], env={**common, **more}, stdout=log, stderr=log, cwd=folder
            )
        running.append(process)
        return process

    mocker = ("dynamo.mocker", "--model-path", str(model), "--model-name", "mock", "--disaggregation-mode")
    try:
        ports = [_system_port()]
        bootstrap = ("--bootstrap-ports", str(free_port()))
        prefill = start("prefill", *mocker, "prefill", *bootstrap, DYN_SYSTEM_PORT=str(ports[0]))
        eventually(lambda: _is_open(ports[0]), 60)
        ports.append(_system_port())
        decode = start("decode", *mocker, "decode", DYN_SYSTEM_PORT=str(ports[1]))
        http = free_port()
        start("frontend", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(http))
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        made = Dynamo(f"http://127.0.0.1:{http}", prefill, decode, urls[0], urls[1])
        eventually(lambda: _passes(made), 90)
        yield made
    finally:
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait(20)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _passes(made: Dynamo) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return made.ask() == 200
    return False
