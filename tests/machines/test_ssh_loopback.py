"""Engines that listen on the loopback of another host, in a network of its own: only a real ssh leads there."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdctl.deployment import files
from pdctl.deployment.model import Deployment, Instance, Role
from tests.cli import pdctl_process
from tests.cli.standin_deployment import ENGINE
from tests.machines.requirements import require
from tests.machines.ssh_server import ssh_hosts
from tests.ports import free_port
from tests.waiting import eventually


@dataclass(frozen=True)
class Far:
    """One stand-in engine in a network of its own, and how pdctl is called with a pd.toml that names it."""

    process: subprocess.Popen[bytes]
    port: int
    home: Path
    path: str

    def pdctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return pdctl_process.run(self.home, *arguments, PATH=self.path)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Iterator[Any]]:
        """Run `pdctl watch` and give what it sees, look by look; Ctrl-C ends it well."""
        process = pdctl_process.start(self.home, "watch", "--interval", "0.5", "-o", "json", PATH=self.path)
        assert process.stdout is not None
        try:
            yield (json.loads(line) for line in process.stdout)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)
        assert process.returncode == 0


@contextlib.contextmanager
def network() -> Iterator[int]:
    """Make a network of its own with nothing but a loopback; yields the pid of who holds it."""
    require("ip", "unshare", "nsenter")
    words = "ip link set lo up && echo up && exec sleep 1000"
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", words], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        yield holder.pid
    finally:
        holder.kill()
        holder.communicate()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    """An engine that answers only there."""
    port, log, folder = free_port(), tmp_path / "engine.log", tmp_path / "ssh"
    folder.mkdir()
    with ssh_hosts(folder) as ssh, network() as holder:
        with log.open("wb") as out:
            words = [*("nsenter", "-t", str(holder), "--net"), sys.executable, "-S", str(ENGINE), str(port)]
            process = subprocess.Popen(words, stdout=out, stderr=out)
        try:
            eventually(lambda: "listening" in log.read_text())
            ssh.add("cell", network=holder)
            instance = Instance(
                name="d", role=Role.DECODE, dialect="pdctl", url=f"http://127.0.0.1:{port}", host="ssh:cell"
            )
            files.save(Deployment(name="far", model="m", instances=(instance,)), tmp_path / "pd.toml")
            yield Far(process, port, tmp_path, ssh.path)
        finally:
            process.kill()
            process.wait()


def test_status_reads_what_only_its_host_reaches(far: Far) -> None:
    """Well, with its queues; from here nobody listens there."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", far.port))
    done = far.pdctl("status", "--timeout", "30", "-o", "json")
    (row,) = json.loads(done.stdout)["instances"]
    assert (done.returncode, row["health"], row["running"], row["oldest_s"]) == (0, "ok", 3, 41.5)


def test_a_snapshot_holds_what_it_answered_and_says_how_it_was_asked(far: Far) -> None:
    """Health, loads and process; a probe cannot go there, which is said."""
    done = far.pdctl("snapshot", "-o", "json")
    kept = Path(json.loads(done.stdout)["kept"])
    gets = {get["path"]: get for get in tomllib.loads((kept / "d" / "http.toml").read_text())["get"]}
    assert gets["/health"]["status"] == 200
    assert json.loads((kept / "d" / "loads.json").read_text())["running"] == 3
    assert tomllib.loads((kept / "d" / "process.toml").read_text())["process"][0]["pid"] == far.process.pid
    assert "is read through ssh:cell; a probe goes out from this machine" in done.stderr


@pytest.mark.parametrize(("number", "state"), [(None, "ok"), (signal.SIGSTOP, "stopped"), (signal.SIGKILL, "gone")])
def test_watch_sees_how_its_process_stands(far: Far, number: signal.Signals | None, state: str) -> None:
    """Its own host says whether it is stopped or gone."""
    if number is not None:
        far.process.send_signal(number)
    if number is signal.SIGKILL:
        far.process.wait()
    # A look does not wait for the login, which takes its time; the session opens meanwhile.
    with far.watching() as sights:
        eventually(lambda: next(sights)["instances"][0]["state"] == state)
