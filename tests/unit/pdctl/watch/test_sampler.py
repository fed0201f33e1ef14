"""What a look takes of real processes, here and on another host."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.hosts.hosts import Hosts
from pdctl.watch.sampler import Sample, Sampler
from tests.cli.standin_deployment import ENGINE
from tests.ports import free_port
from tests.waiting import eventually


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A process that answers HTTP, and its url."""
    port, log = free_port(), tmp_path / "engine.log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-S", str(ENGINE), str(port)], stdout=out, stderr=out)
    try:
        eventually(lambda: "listening" in log.read_text())
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def sampler(folder: Path, url: str, host: str, hosts: Hosts) -> Sampler:
    instance = Instance(name="d", role=Role.DECODE, dialect="pdctl", url=url, host=host)
    deployment = Deployment(name="lab", model="m", instances=(instance,))
    return Sampler(deployment, StateFolder(folder, "lab"), hosts)


def states(sample: Sample) -> list[str]:
    """Return the states of the processes that were looked at; of who answers none are."""
    if "d/process.toml" not in sample.files:
        return []
    return [row["state"] for row in tomllib.loads(sample.files["d/process.toml"].decode())["process"]]


@pytest.mark.parametrize("host", ["local", "exec:env"])
def test_processes_are_looked_at_on_their_host_while_they_do_not_answer(
    tmp_path: Path, engine: tuple[str, subprocess.Popen[bytes]], host: str
) -> None:
    """Not while it answers; stopped, while a signal holds it; and no more when it answers again."""
    url, process = engine
    with Hosts() as hosts:
        looks = sampler(tmp_path, url, host, hosts)

        def are_states(wanted: list[str]) -> bool:
            return states(asyncio.run(looks.take())) == wanted

        eventually(lambda: are_states([]))
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: are_states(["T"]))
        process.send_signal(signal.SIGCONT)
        eventually(lambda: are_states([]))


def test_a_look_that_is_cancelled_ends_at_once_and_leaves_no_child(
    tmp_path: Path, engine: tuple[str, subprocess.Popen[bytes]]
) -> None:
    """Ctrl-C at any of its moments: before the child is born, while it is, while it runs."""
    url, process = engine
    process.send_signal(signal.SIGSTOP)

    async def cancelled(looks: Sampler, turns: int) -> None:
        look = asyncio.ensure_future(looks.take())
        for _ in range(turns):
            await asyncio.sleep(0)
        look.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(look, 20)

    def children() -> set[int]:
        return {child.pid for child in psutil.Process().children()}

    # Other tests of this process may have some.
    before = children()
    with Hosts() as hosts:
        looks = sampler(tmp_path, url, "local", hosts)
        # From now on it is known to be silent, and its processes are looked at from the beginning of a look.
        asyncio.run(looks.take())
        for turns in (2**power for power in range(15)):
            asyncio.run(cancelled(looks, turns))
            assert children() - before == set()


def test_a_host_that_is_lost_costs_a_look_little_and_is_told(tmp_path: Path) -> None:
    """Nothing is known of its processes, in its words."""
    with Hosts() as hosts:
        looks = sampler(tmp_path, "http://127.0.0.1:9", "exec:sh -c 'echo no route >&2; false' #", hosts)
        sample = asyncio.run(looks.take())
    assert states(sample) == []
    assert b"no route" in sample.files["d/http.prev.toml"]
