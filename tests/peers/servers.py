"""A peer's process: started, signalled and ended together with all that it starts."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

_OURS = ("PYTHONPATH",)
"""Variables of the tests that a peer must not inherit."""


@dataclass
class Server:
    """One server in a session of its own, with its log; it may be started again after its end."""

    name: str
    url: str
    argv: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    @property
    def is_running(self) -> bool:
        """Return whether it was started and has not ended."""
        return self.child is not None and self.child.poll() is None

    def start(self) -> None:
        """Start it; the log is appended to."""
        inherited = {name: text for name, text in os.environ.items() if name not in _OURS}
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                self.argv,
                env={**inherited, **self.environment},
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                start_new_session=True,
            )

    def processes(self) -> dict[int, str]:
        """Return pid -> name of all that belong to it now."""
        root = psutil.Process(self.pid)
        return {item.pid: item.name() for item in (root, *root.children(recursive=True))}

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End all of its processes, stopped ones too."""
        if self.child is not None:
            self.signal(signal.SIGKILL)
            self.child.wait(20)

    def is_well(self, path: str = "/health") -> bool:
        """Return whether `path` says 200; raises RuntimeError with the end of the log when the process ended."""
        if not self.is_running:
            raise RuntimeError(f"{self.name} ended:\n{self.log.read_text(errors='replace')[-3000:]}")
        if not is_open(self.url):
            return False
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}{path}", timeout=2, trust_env=False).status_code == 200
        return False


_LOW, _HIGH = 20_000, 29_999
"""Below the range from which the kernel takes ports for connections (32768 on Linux), and away from pdctl's own."""


def low_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody listens on and that no client is given before the server binds them."""
    found: list[int] = []
    for port in random.sample(range(_LOW, _HIGH + 1), _HIGH - _LOW + 1):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"fewer than {count} ports between {_LOW} and {_HIGH} are free")


def is_open(url: str) -> bool:
    """Return whether somebody listens at an address `http://127.0.0.1:PORT`."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0
