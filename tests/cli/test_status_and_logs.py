"""`pdctl status` and `logs`, as a user calls them, on stand-in engines."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.managers import shim
from tests.cli import pdctl_process
from tests.cli.standin_deployment import Standins, standins_in
from tests.waiting import eventually


@pytest.fixture
def standins(tmp_path: Path) -> Iterator[Standins]:
    """A deployment that can be started."""
    yield from standins_in(tmp_path)


def test_status_of_a_well_deployment(standins: Standins) -> None:
    """Queues and the oldest age of all queues come from /v1/loads; exit 0."""
    standins.up()
    done = standins.run("status")
    line = next(line for line in done.stdout.splitlines() if line.startswith("decode-0"))
    assert line.split()[-4:] == ["ok", "3", "2", "41s"]
    assert done.returncode == 0


def test_status_of_a_hung_engine(standins: Standins) -> None:
    """One that accepts and never answers costs the timeout once, and the others are shown."""
    standins.behave(prefill_0="hang", decode_0="hang")
    standins.up("--no-wait")
    eventually(lambda: standins.status()["router"]["health"] == "ok")
    done = standins.run("status", "--timeout", "0.5", "-o", "json")
    assert done.returncode == 1
    status = standins.status()
    assert status["prefill-0"]["health"] == "no answer within 2 s"
    assert (status["prefill-0"]["process"], status["router"]["is_well"]) == ("running", True)


def test_status_of_a_dead_engine(standins: Standins) -> None:
    """It says how it died; exit 1."""
    standins.up()
    pid = standins.pids()["decode-0"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: standins.pids()["decode-0"] is None)
    done = standins.run("status")
    assert "killed by SIGKILL" in done.stdout
    assert done.returncode == 1


def test_status_of_an_unwell_engine(standins: Standins) -> None:
    """Its own words are passed on."""
    standins.behave(decode_0="unwell")
    standins.up("--no-wait")
    eventually(lambda: standins.status()["decode-0"]["health"] == "503: loading")


def test_stranger_on_the_port_is_not_our_engine(standins: Standins) -> None:
    """A process that answers in place of a stopped instance does not make it well."""
    standins.up()
    standins.run("down")
    paths = shim.Paths(standins.home / "stranger.json", standins.home / "stranger.log")
    start = [*("python3", str(Path(__file__).parents[1] / "fakes/standin_engine.py"), str(standins.ports["decode-0"]))]
    shim.start("stranger", start, {}, paths, cwd=standins.home)
    try:
        words = "answered by a process that pdctl did not start"
        eventually(lambda: standins.status()["decode-0"]["health"] == words)
        assert standins.status()["decode-0"]["is_well"] is False
    finally:
        shim.ask_to_stop(paths)
        shim.await_stopped(paths, 5.0)


def test_status_without_anything(tmp_path: Path) -> None:
    """Exit 3, and what to do."""
    done = pdctl_process.run(tmp_path, "status")
    assert done.returncode == 3
    assert "pdctl up" in done.stderr


def test_logs_of_all_instances_carry_their_names(standins: Standins) -> None:
    """Padded, so that the lines begin in one column."""
    standins.up()
    done = standins.run("logs")
    assert sorted(done.stdout.splitlines()) == [
        f"{name:<9} | listening on {standins.ports[name]}" for name in ("decode-0", "prefill-0", "router")
    ]


def test_logs_of_one_instance_are_plain(standins: Standins) -> None:
    """As the engine printed them; -n limits them."""
    standins.up()
    assert standins.run("logs", "router").stdout == f"listening on {standins.ports['router']}\n"
    assert standins.run("logs", "-n", "0", "router").stdout == ""


def test_logs_of_an_unknown_instance(standins: Standins) -> None:
    """The names there are, are listed."""
    standins.up()
    done = standins.run("logs", "decode-9")
    assert done.returncode == 2
    assert "there are prefill-0, decode-0, router" in done.stderr


def test_logs_follow_until_ctrl_c(standins: Standins) -> None:
    """New lines of any instance come at once; Ctrl-C ends it quietly with 130."""
    standins.up()
    with standins.start("logs", "-f") as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(3)]
        with standins.folder.paths("decode-0").log.open("a") as log:
            log.write("something new\n")
        seen.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert seen[-1] == "decode-0  | something new\n"
    assert (process.returncode, err) == (130, "")
