"""A deployment of real engines behind the real router, made and operated by `pdctl`."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.cli import pdctl_process
from tests.serving.rig import ENVIRONMENT, free_port


@dataclass
class Served:
    """A deployment made by `pdctl up`, in a home of its own."""

    home: Path

    def __post_init__(self) -> None:
        # The C++ step is compiled once for all tests, as for a user who starts engines again.
        shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pdengine"
        shared.mkdir(parents=True, exist_ok=True)
        own = self.home / "cache" / "pdengine"
        own.parent.mkdir(exist_ok=True)
        if not own.is_symlink():
            own.symlink_to(shared)

    def pdctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pdctl to its end; recoveries take longer than other commands."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def typed(self, answers: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pdctl with a terminal as stdin, on which the answers were typed ahead."""
        outside, inside = pty.openpty()
        try:
            os.write(outside, answers.encode())
            process = self.start(*arguments, stdin=inside)
            out, err = process.communicate(timeout=200)
        finally:
            os.close(inside)
            os.close(outside)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
        """Start pdctl."""
        # The router, unlike us, would ask its workers through a proxy from the environment.
        return pdctl_process.start(self.home, *arguments, stdin=stdin, HTTP_PROXY="", http_proxy="", **ENVIRONMENT)

    def json(self, *arguments: str) -> Any:
        """Return what a command says with `-o json`."""
        done = self.pdctl(*arguments, "-o", "json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    @property
    def bootstrap_port(self) -> int:
        """Return the port of prefill's registry."""
        text = (self.home / "state" / "pdctl" / "default" / "deployment.toml").read_text()
        return int(text.partition("bootstrap_port = ")[2].split()[0])

    def pids(self) -> dict[str, int | None]:
        """Return the pid of each instance."""
        return {row["name"]: row["pid"] for row in self.json("status")["instances"]}

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to an instance's process and its children."""
        pid = self.pids()[name]
        assert pid is not None
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            os.kill(process.pid, number)

    def is_well(self) -> bool:
        """Return whether every instance is."""
        return bool(self.json("status")["is_well"])


def port_base() -> int:
    """Return a base whose five ports of a 1P1D deployment are free now."""
    while True:
        # Below the ports that the kernel lends to clients.
        base = 20_000 + free_port() % 12_000
        needed = (base, base + 1, base + 2, base + 50, base + 60)
        used = {connection.laddr.port for connection in psutil.net_connections("tcp") if connection.laddr}
        if not used & set(needed):
            return base


@contextlib.contextmanager
def served_by_pdctl(home: Path, model: Path, *arguments: str) -> Iterator[Served]:
    """Run what `pdctl up` starts with these arguments, 1 prefill, 1 decode and a router without; nothing is left."""
    served = Served(home)
    try:
        up = served.pdctl("up", "--model", str(model), "--port-base", str(port_base()), *arguments)
        assert up.returncode == 0, up.stderr
        yield served
    finally:
        served.pdctl("down", "--timeout", "0")
