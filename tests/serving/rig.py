"""Starts and stops real engines and the real router on loopback, each on ports of its own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from pdctl.deployment.layout import with_starts
from pdctl.deployment.model import Deployment, Instance, Role
from tests.ports import free_port

START_LIMIT_S = 90.0
STOP_LIMIT_S = 10.0
POLL_S = 0.05
VERSION = "0.1.0"

ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "OMP_NUM_THREADS": "1",
    "NIXL_LOG_LEVEL": "ERROR",
    "UCX_LOG_LEVEL": "error",
    "UCX_NET_DEVICES": "lo",
}


class NotInTime(AssertionError):
    """Something that had to become true did not."""


def until(condition: Any, limit_s: float, what: str) -> Any:
    """Return the first true value of `condition()`; raises NotInTime after `limit_s`."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(POLL_S)
    raise NotInTime(f"{what}: not within {limit_s:g} s")


@dataclass
class Process:
    """A child of the test, with its log."""

    name: str
    argv: list[str]
    url: str
    log_path: Path
    environment: dict[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Start it; the log is appended to."""
        with self.log_path.open("ab") as log:
            self.child = subprocess.Popen(
                self.argv,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT, **self.environment},
                start_new_session=True,
            )
        return self

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def wait_ready(self, path: str = "/health") -> Process:
        """Wait until `path` answers 200; raises with the end of the log when the process died."""
        until(lambda: self._answers(path), START_LIMIT_S, f"{self.name} ready; its log:\n{self.log_tail()}")
        return self

    def _answers(self, path: str) -> bool:
        assert self.child is not None
        if self.child.poll() is not None:
            raise NotInTime(f"{self.name} ended with {self.child.returncode}:\n{self.log_tail()}")
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.url + path, timeout=2).status_code == 200
        return False

    def get(self, path: str) -> Any:
        """Return the JSON of a GET."""
        return httpx.get(self.url + path, timeout=10).json()

    def post(self, path: str, body: dict[str, Any], timeout_s: float = 120.0, **headers: str) -> httpx.Response:
        """Return the answer to a POST."""
        return httpx.post(self.url + path, json=body, timeout=timeout_s, headers=headers)

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log."""
        return (
            "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:]) if self.log_path.exists() else ""
        )

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal to the process (its group for SIGKILL) and wait for its end."""
        assert self.child is not None
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        try:
            return self.child.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.child.wait(STOP_LIMIT_S)
            raise NotInTime(f"{self.name} did not end by signal {number}:\n{self.log_tail()}") from None


def engine(
    role: str, model: Path | str, folder: Path, *flags: str, environment: dict[str, str] | None = None
) -> Process:
    """Return an engine of that role, not yet started, one thread, on a free port."""
    port = free_port()
    argv = [sys.executable, "-m", "engine", "--role", role, "--model", str(model), "--port", str(port)]
    argv += ["--served-name", "test", "--instance", f"{role}-{port}", *flags]
    return Process(role, argv, f"http://127.0.0.1:{port}", folder / f"{role}-{port}.log", environment or {})


@dataclass
class Pair:
    """One prefill and one decode; posts both legs itself, as a router would."""

    prefill: Process
    decode: Process
    bootstrap_port: int

    def legs(self, body: dict[str, Any], room: int | None = None) -> dict[str, Any]:
        """Return the body that a router would send to both legs."""
        return {
            **body,
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.bootstrap_port,
            "bootstrap_room": random.getrandbits(62) if room is None else room,
        }

    def post(self, path: str, body: dict[str, Any], timeout_s: float = 120.0) -> tuple[httpx.Response, httpx.Response]:
        """Return prefill's and decode's answers."""
        full = self.legs(body)
        with ThreadPoolExecutor(2) as pool:
            legs = [pool.submit(side.post, path, full, timeout_s) for side in (self.prefill, self.decode)]
            return legs[0].result(), legs[1].result()

    def is_idle(self) -> bool:
        """No room and no page in use on either side."""
        return is_idle(self.prefill) and is_idle(self.decode)


def is_idle(process: Process) -> bool:
    """No room, and no page in use but cached ones."""
    ledger = process.get("/ledger")
    is_free = bool(ledger["balanced"]) and ledger["free"] + ledger["cached"] == ledger["total"]
    return is_free and not process.get("/rooms")["rooms"]


@contextlib.contextmanager
def running(*processes: Process) -> Iterator[None]:
    """Start all, wait until each is ready, kill all at the end."""
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait_ready()
        yield
    finally:
        for process in processes:
            if process.child is not None and process.child.poll() is None:
                process.kill()


@contextlib.contextmanager
def pair(
    model: Path | str,
    folder: Path,
    *flags: str,
    prefill_flags: tuple[str, ...] = (),
    decode_flags: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[Pair]:
    """Run a prefill and a decode that know each other; `flags` go to both."""
    bootstrap = free_port()
    registry = ("--bootstrap-port", str(bootstrap))
    prefill = engine("prefill", model, folder, *registry, *flags, *prefill_flags, environment=environment)
    peers = ("--peers", f"127.0.0.1:{bootstrap}")
    decode = engine("decode", model, folder, *peers, *flags, *decode_flags, environment=environment)
    with running(prefill, decode):
        yield Pair(prefill, decode, bootstrap)


def instances(pair: Pair) -> tuple[Instance, ...]:
    """Return what a deployment file says of a pair."""
    prefill = Instance(
        name="prefill-0",
        role=Role.PREFILL,
        dialect="pdctl",
        version=VERSION,
        url=pair.prefill.url,
        bootstrap_port=pair.bootstrap_port,
    )
    decode = Instance(name="decode-0", role=Role.DECODE, dialect="pdctl", version=VERSION, url=pair.decode.url)
    return prefill, decode


@contextlib.contextmanager
def router(engines: Pair | tuple[Instance, ...], folder: Path) -> Iterator[Process]:
    """Run the real router in front of engines, with the command line that `pdctl up` gives it."""
    port = free_port()
    smg = Instance(
        name="router",
        role=Role.ROUTER,
        dialect="smg",
        url=f"http://127.0.0.1:{port}",
        metrics_url=f"http://127.0.0.1:{free_port()}/metrics",
        manager="shim",
    )
    workers = instances(engines) if isinstance(engines, Pair) else engines
    deployment = with_starts(Deployment(name="test", model="test", instances=(*workers, smg)), model="none", cores=1)
    start = deployment.instances[-1].start
    assert start is not None
    process = Process("router", list(start), smg.url, folder / f"router-{port}.log")
    try:
        process.start().wait_ready("/readiness")
        yield process
    finally:
        if process.child is not None and process.child.poll() is None:
            process.kill()
