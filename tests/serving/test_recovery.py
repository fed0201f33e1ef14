"""Real wedges of real engines behind the real router, recovered and proven by `pdctl`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli import pdctl_process
from tests.serving.rig import ENVIRONMENT, free_port, until

pytestmark = pytest.mark.slow


@dataclass
class Served:
    """A deployment made by `pdctl up`, in a home of its own."""

    home: Path

    def pdctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pdctl to its end; recoveries take longer than other commands."""
        # The router, unlike us, would ask its workers through a proxy from the environment.
        process = pdctl_process.start(self.home, *arguments, HTTP_PROXY="", http_proxy="", **ENVIRONMENT)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        """Return what a command says with `-o json`."""
        done = self.pdctl(*arguments, "-o", "json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

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


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """1 prefill, 1 decode and a router; well again before each test."""
    served = Served(tmp_path_factory.mktemp("recovery"))
    try:
        up = served.pdctl("up", "--model", str(tiny_model_dir), "--port-base", str(port_base()))
        assert up.returncode == 0, up.stderr
        yield served
    finally:
        served.pdctl("down", "--timeout", "0")


@pytest.fixture(autouse=True)
def well(served: Served) -> None:
    """A test does not begin before the one before it has left everything well."""
    until(served.is_well, 20, "well")


def causes(served: Served, evidence: str) -> list[str]:
    """Return the firm causes that `pdctl diagnose` finds in a kept folder."""
    report = served.json("diagnose", evidence)
    return [cause["code"] for cause in report["causes"] if cause["confidence"] in ("established", "supported")]


def test_stopped_prefill_is_recovered_alone_and_proven(served: Served) -> None:
    """SIGSTOP: the cause is named, only prefill is replaced, five requests pass on the pair and two by the router."""
    before = served.pids()
    served.signal("prefill-0", signal.SIGSTOP)
    done = served.json("snapshot-and-restart", "--yes")
    after = served.pids()
    assert (done["outcome"], done["detail"]) == ("recovered", "")
    assert (after["decode-0"], after["router"]) == (before["decode-0"], before["router"])
    assert after["prefill-0"] not in (None, before["prefill-0"])
    pair, router = done["verification"]["pairs"][0], done["verification"]["router"]
    assert (pair["via"], pair["sent"], pair["passed"]) == ("prefill-0 -> decode-0", 5, 5)
    assert (router["sent"], router["passed"]) == (2, 2)
    assert causes(served, done["kept"])[0] == "PD0305"
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(before["prefill-0"])
    last = served.json("history")[-1]
    assert last["entries"][0]["summary"]["cause"].startswith("PD0305")


def test_killed_decode_is_recovered_alone(served: Served) -> None:
    """kill -9 of decode: it is started again beside the same prefill."""
    before = served.pids()
    served.signal("decode-0", signal.SIGKILL)
    until(lambda: served.pids()["decode-0"] is None, 10, "decode dead")
    done = served.json("snapshot-and-restart", "--yes")
    after = served.pids()
    assert done["outcome"] == "recovered"
    assert after["prefill-0"] == before["prefill-0"]
    assert after["decode-0"] not in (None, before["decode-0"])
    assert causes(served, done["kept"])[0] == "PD0101"


def test_what_serves_is_refused(served: Served) -> None:
    """Exit 5, the verdict and the way round it are said, nothing is touched and nothing is in the history."""
    before, known = served.pids(), len(served.json("history"))
    done = served.pdctl("snapshot-and-restart", "--yes", "--reason", "try")
    assert done.returncode == 5
    assert "just served a request, and no other could instead" in done.stderr
    assert "--force --reason" in done.stderr
    assert (served.pids(), len(served.json("history"))) == (before, known)


def test_planned_restart_of_both_is_proven(served: Served) -> None:
    """With --force, because there is no second pair; the table has every phase."""
    before = served.pids()
    done = served.json("restart", "--yes", "--force", "--reason", "maintenance")
    after = served.pids()
    assert done["outcome"] == "recovered"
    assert all(after[name] not in (None, before[name]) for name in ("prefill-0", "decode-0"))
    assert [phase["name"] for phase in done["phases"]][-3:] == ["stop", "start to ready", "verify"]


def test_router_that_fails_alone_is_told_with_its_own_step(served: Served) -> None:
    """Direct requests pass, the router is stopped: outcome router_fails and the command; that one cures it."""
    served.signal("router", signal.SIGSTOP)
    done = served.json("restart", "decode-0", "--yes", "--force", "--reason", "drill")
    assert done["outcome"] == "router_fails"
    cure = served.json("restart", "router", "--yes", "--force", "--reason", "direct requests pass")
    assert cure["outcome"] == "recovered"


def test_snapshot_is_complete_and_clean(served: Served) -> None:
    """Both products; no process is left stopped; the archive names neither model path nor home."""
    done = served.json("snapshot")
    assert done["summary"]["unwritten"] is None
    archive = Path(done["archive"])
    assert archive.stat().st_mode & 0o777 == 0o600
    assert Path(done["kept"]).stat().st_mode & 0o777 == 0o700
    from pdctl.evidence.archive import read

    text = b"\n".join(read(archive).values())
    assert str(served.home).encode() not in text
    states = [psutil.Process(pid).status() for pid in served.pids().values() if pid]
    assert psutil.STATUS_STOPPED not in states
