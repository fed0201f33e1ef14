"""Evidence over a real ssh from a real sshd."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pdctl.collect.session import Collector
from pdctl.deployment import files
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.hosts.hosts import Hosts
from tests.cli import pdctl_process
from tests.cli.standin_deployment import ENGINE
from tests.machines.ssh_server import SshHosts, ssh_hosts
from tests.ports import free_port
from tests.waiting import eventually

LIMIT_S = 30.0
VENV = str(Path(sys.executable).parent)


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """`near` has py-spy on its PATH; `bare` has not; `frozen` accepts and says nothing; `stranger` has no known key."""
    with ssh_hosts(tmp_path_factory.mktemp("ssh")) as hosts:
        hosts.add("near", remote_path=f"{VENV}:/usr/bin:/bin:/usr/sbin:/sbin")
        hosts.add("bare")
        hosts.add("frozen")
        hosts.add("stranger", is_known=False)
        hosts.freeze("frozen")
        yield hosts


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A process that answers HTTP and prints into a file: its port and pid."""
    port = free_port()
    log = tmp_path / "engine.log"
    log.with_name("engine.log.1").write_text("older line\n")
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-S", str(ENGINE), str(port)], stdout=out, stderr=out)
    try:
        eventually(lambda: "listening" in log.read_text())
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def deployment(port: int, **hosts: str) -> Deployment:
    """Return one instance a host; all but the first have a port where nobody listens."""
    ports = [port, *(free_port() for _ in hosts)]
    instances = tuple(
        Instance(name=name, role=Role.DECODE, dialect="pdctl", url=f"http://127.0.0.1:{port}", host=host)
        for (name, host), port in zip(hosts.items(), ports, strict=False)
    )
    return Deployment(name="far", model="m", instances=instances)


Taken = dict[str, dict[str, dict[str, object]]]
"""Instance -> file -> its record in capture.toml."""


def taken_in(folder: Path) -> Taken:
    """Read what came of each file."""
    captures = {path.parent.name: tomllib.loads(path.read_text()) for path in folder.glob("*/capture.toml")}
    return {name: {row["name"]: row for row in capture["file"]} for name, capture in captures.items()}


@pytest.fixture
def collected(tmp_path: Path, ssh: SshHosts, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Taken]:
    """Collect with stacks, unless told otherwise."""
    monkeypatch.setenv("PATH", ssh.path)

    def collected(deployed: Deployment, tier: int = 1) -> Taken:
        with Hosts() as hosts:
            collector = Collector(deployed, tmp_path / "kept", hosts=hosts)
            collector.take(tier=tier, interval_s=0.1, timeout_s=LIMIT_S)
        return taken_in(tmp_path / "kept")

    return collected


def test_everything_of_a_host_is_read_over_one_login(tmp_path: Path, ssh: SshHosts, engine: tuple[int, int]) -> None:
    """Processes, logs with the rotated one, stacks, versions and the clock; no ssh is left."""
    port, pid = engine
    files.save(deployment(port, near="ssh:near"), tmp_path / "pd.toml")
    logins = ssh.said("near").count("Accepted publickey")
    done = pdctl_process.run(tmp_path, "snapshot", "--timeout", "40", "-o", "json", PATH=ssh.path)
    assert done.stdout, done.stderr
    assert ssh.said("near").count("Accepted publickey") == logins + 1
    kept = Path(json.loads(done.stdout)["kept"])
    taken = taken_in(kept)["near"]
    assert tomllib.loads((kept / "near" / "process.toml").read_text())["process"][0]["pid"] == pid
    assert (kept / "near" / "log.txt").read_text() == f"older line\nlistening on {port}\n"
    assert taken["stacks.json"]["status"] == taken["source.toml"]["status"] == "ok", taken["stacks.json"]["error"]
    threads = json.loads((kept / "near" / "stacks.json").read_text())
    assert any(frame["name"] == "main" for thread in threads for frame in thread["frames"])
    assert tomllib.loads((kept / "near" / "capture.toml").read_text())["clock_offset_ms"] == 0.0
    assert not [process for process in psutil.process_iter(["cmdline"]) if _is_ssh_to(process, "near")]


def test_missing_pyspy_is_told_with_the_remedy(collected: Callable[..., Taken], engine: tuple[int, int]) -> None:
    """Only that is missing."""
    taken = collected(deployment(engine[0], bare="ssh:bare"))["bare"]
    assert taken["stacks.json"]["status"] == "absent", taken["stacks.json"]["error"]
    assert str(taken["stacks.json"]["error"]).startswith("py-spy is not on PATH on ssh:bare: `pip install py-spy`")
    assert taken["process.toml"]["status"] == "ok"


def test_hung_host_costs_the_others_nothing(collected: Callable[..., Taken], engine: tuple[int, int]) -> None:
    """Within the time asked for, one host is whole, and of the other it is said that it does not answer."""
    began = time.monotonic()
    taken = collected(deployment(engine[0], near="ssh:near", frozen="ssh:frozen"))
    assert time.monotonic() - began < LIMIT_S + 2, "the whole, with what a busy machine adds"
    assert {taken["near"][name]["status"] for name in ("process.toml", "log.txt", "stacks.json")} == {"ok"}
    for name in ("process.toml", "log.txt", "stacks.json"):
        assert taken["frozen"][name]["status"] == "failed"
        assert "ssh:frozen did not answer" in str(taken["frozen"][name]["error"])


def test_unknown_host_key_is_never_skipped(
    ssh: SshHosts, collected: Callable[..., Taken], engine: tuple[int, int]
) -> None:
    """Though the configuration says so; the remedy is in the message."""
    error = str(collected(deployment(engine[0], stranger="ssh:stranger"))["stranger"]["process.toml"]["error"])
    assert "Host key verification failed" in error
    assert "compare its key and connect once by hand" in error
    assert (ssh.folder / "known_hosts").read_text().count("\n") == 3


def test_container_is_read_by_its_exec_command(collected: Callable[..., Taken], engine: tuple[int, int]) -> None:
    """Anything that runs `sh` from stdin; here in a process namespace of its own, as `docker exec -i` does."""
    box = "exec:unshare --fork --pid --mount-proc"
    taken = collected(deployment(engine[0], boxed=box), tier=0)["boxed"]
    # The engine is outside of it: what is not in the namespace is not seen.
    assert taken["process.toml"]["status"] == "absent"
    assert f"no process on {box} listens" in str(taken["process.toml"]["error"])


def _is_ssh_to(process: psutil.Process, name: str) -> bool:
    words = process.info["cmdline"] or []
    return words[:1] != [] and words[0].endswith("ssh") and name in words
