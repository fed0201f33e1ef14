"""`pdctl up` and `down`, as a user calls them, on stand-in engines."""

from __future__ import annotations

import json
import os
import signal
import socket
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


def test_up_starts_everything_and_outlives_the_command(standins: Standins) -> None:
    """All well, exit 0; stdout carries the result, stderr the progress."""
    done = standins.up()
    assert done.returncode == 0, done.stderr
    assert all(standins.pids().values())
    assert f"m is served at http://127.0.0.1:{standins.ports['router']}/v1" in done.stdout
    assert "prefill-0: started (pid" in done.stderr


def test_up_as_json(standins: Standins) -> None:
    """One object, nothing else on stdout."""
    whole = json.loads(standins.up("-o", "json").stdout)
    assert whole["probe"] is None
    assert [row["name"] for row in whole["status"]["instances"]] == ["prefill-0", "decode-0", "router"]
    assert whole["status"]["is_well"] is True


def test_second_up_changes_nothing(standins: Standins) -> None:
    """What runs is left alone and named."""
    standins.up()
    before = standins.pids()
    done = standins.up()
    assert done.returncode == 0
    assert f"decode-0: already running (pid {before['decode-0']})" in done.stderr
    assert standins.pids() == before


def test_up_starts_what_is_missing(standins: Standins) -> None:
    """One killed instance comes back, the others keep their processes."""
    standins.up()
    before = standins.pids()
    assert before["decode-0"] is not None
    os.kill(before["decode-0"], signal.SIGKILL)
    eventually(lambda: standins.pids()["decode-0"] is None)
    assert standins.up().returncode == 0
    after = standins.pids()
    assert after["decode-0"] not in (None, before["decode-0"])
    assert (after["prefill-0"], after["router"]) == (before["prefill-0"], before["router"])


def test_two_ups_at_once_start_everything_once(standins: Standins) -> None:
    """The second waits for the first, and then finds all running."""
    with standins.start("up", "--no-probe") as one, standins.start("up", "--no-probe") as other:
        errors = [process.communicate(timeout=60)[1] for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0)
    assert sum(text.count(": started (pid") for text in errors) == 3
    assert sum(text.count(": already running (pid") for text in errors) == 3


def test_up_adopts_an_engine_whose_shim_was_killed(standins: Standins) -> None:
    """It runs and is healthy, so there is nothing to start; `status` tells; `down` stops it."""
    standins.up()
    record = standins.folder.paths("decode-0").state
    before = standins.pids()
    os.kill(json.loads(record.read_text())["shim_pid"], signal.SIGKILL)
    eventually(lambda: standins.status()["decode-0"]["process"] == "running without its shim")
    assert standins.up().returncode == 0
    assert standins.pids() == before
    assert "decode-0: stopped" in standins.run("down").stdout
    assert standins.leftovers() == []


def test_engine_that_dies_is_shown_at_once(standins: Standins) -> None:
    """Its code, its last lines and the log's path; the others are stopped again."""
    standins.behave(decode_0="dies")
    done = standins.up("--timeout", "60")
    assert done.returncode == 1
    assert "pdctl: decode-0 exited with code 7 while it started" in done.stderr
    assert "    RuntimeError: the weights are not weights\n" in done.stderr
    assert str(standins.folder.paths("decode-0").log) in done.stderr
    assert standins.leftovers() == []


def test_engine_that_is_started_again_in_vain_is_shown_before_the_timeout(standins: Standins) -> None:
    """With --restart on-failure nothing ever ends for good: three deaths are enough."""
    standins.behave(decode_0="dies")
    done = standins.up("--restart", "on-failure", "--timeout", "60")
    assert done.returncode == 1
    assert "pdctl: decode-0 ended 3 times while it started" in done.stderr
    assert done.stderr.count("RuntimeError: the weights are not weights") == 3
    assert standins.leftovers() == []


def test_what_an_earlier_start_printed_is_not_shown(standins: Standins) -> None:
    """Only the lines of the engine that died now: those of last week's failure would mislead."""
    standins.behave(decode_0="dies")
    standins.up()
    done = standins.up()
    assert done.stderr.count("RuntimeError: the weights are not weights") == 1


def test_engine_that_is_never_well(standins: Standins) -> None:
    """After the timeout the message says what it answered, and nothing is left running."""
    standins.behave(prefill_0="unwell")
    done = standins.up("--timeout", "1")
    assert done.returncode == 1
    assert "pdctl: not well after 1 s: prefill-0 (503: loading)" in done.stderr
    assert standins.leftovers() == []


@pytest.mark.parametrize(
    ("number", "prefill"),
    [(signal.SIGINT, "unwell stubborn"), (signal.SIGTERM, "unwell"), (signal.SIGHUP, "unwell")],
)
def test_interrupted_up_leaves_nothing_running(standins: Standins, number: signal.Signals, prefill: str) -> None:
    """By Ctrl-C, `kill` or a closed terminal: also children, and also an engine that ignores SIGTERM."""
    standins.behave(prefill_0=prefill, decode_0="crowd")
    with standins.start("up", "--no-probe") as process:
        assert process.stderr is not None
        eventually(lambda: "prefill-0: waiting (503: loading)" in process.stderr.readline())
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopping what this call started, so that nothing half started stays: prefill-0, decode-0, router" in said
    assert standins.leftovers() == []


def test_ctrl_c_leaves_alone_what_ran_before(standins: Standins) -> None:
    """Only what this call started is undone."""
    standins.up()
    before = standins.pids()
    assert before["prefill-0"] is not None
    os.kill(before["prefill-0"], signal.SIGKILL)
    eventually(lambda: standins.pids()["prefill-0"] is None)
    standins.behave(prefill_0="unwell")
    with standins.start("up", "--no-probe") as process:
        assert process.stderr is not None
        eventually(lambda: "prefill-0: waiting (503: loading)" in process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert standins.pids() == before | {"prefill-0": None}


def test_taken_port_names_its_holder(standins: Standins) -> None:
    """Port, instance and process; nothing is started."""
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", standins.ports["decode-0"]))
        mine.listen()
        done = standins.up()
    assert done.returncode == 4
    assert f"port {standins.ports['decode-0']} (decode-0) is taken by pid {os.getpid()}: " in done.stderr
    assert standins.leftovers() == []


def test_other_settings_are_refused(standins: Standins) -> None:
    """What runs is not replaced behind the user's back."""
    standins.up()
    before = standins.pids()
    standins.behave(decode_0="stubborn")
    done = standins.up()
    assert done.returncode == 5
    assert f"decode-0 (pid {before['decode-0']}) of 'standins' runs with other settings" in done.stderr
    assert standins.pids() == before


@pytest.mark.parametrize("flags", [("--prefill", "2"), ("--decode", "2"), ("--port-base", "31000"), ("--name", "x")])
def test_flags_that_contradict_the_file(standins: Standins, flags: tuple[str, str]) -> None:
    """A file and a layout cannot both hold."""
    done = standins.up(*flags)
    assert done.returncode == 2
    assert f"pd.toml says what is deployed, and {flags[0]} would too" in done.stderr


def test_no_wait_returns_at_once(standins: Standins) -> None:
    """The processes exist; nobody asked whether they are well."""
    standins.behave(prefill_0="unwell")
    done = standins.up("--no-wait")
    assert done.returncode == 0
    assert standins.pids()["prefill-0"] is not None


def test_down_stops_in_order_and_twice_is_fine(standins: Standins) -> None:
    """Router, decode, prefill; nothing is left; the second time there is nothing to do."""
    standins.behave(decode_0="crowd")
    standins.up()
    first, second = standins.run("down"), standins.run("down")
    assert first.stdout.splitlines() == ["router: stopped", "decode-0: stopped", "prefill-0: stopped"]
    assert [line.partition(" ")[2] for line in second.stdout.splitlines()] == ["was not running (stopped)"] * 3
    assert (first.returncode, second.returncode, standins.leftovers()) == (0, 0, [])


def test_down_kills_what_does_not_leave(standins: Standins) -> None:
    """At the deadline, and says so."""
    standins.behave(prefill_0="stubborn")
    standins.up()
    done = standins.run("down", "--timeout", "0.2")
    assert "prefill-0: killed, it did not stop in time" in done.stdout
    assert (done.returncode, standins.leftovers()) == (0, [])


def test_down_does_not_wait_for_a_router_without_engines(standins: Standins) -> None:
    """It has nothing to finish: it is ended at once and not called killed, whatever the timeout."""
    urls = " ".join(f"http://127.0.0.1:{standins.ports[name]}" for name in ("prefill-0", "decode-0"))
    standins.behave(router=f"stubborn {urls}")
    standins.up()
    done = standins.run("down", "--timeout", "60")
    assert done.stdout.splitlines()[0] == "router: stopped"
    assert (done.returncode, standins.leftovers()) == (0, [])


def test_down_lets_a_router_finish_whose_engines_go_on(standins: Standins) -> None:
    """One of its engines is not ours to stop, so requests may be under way: it has the whole timeout."""
    standins.behave(router="stubborn http://127.0.0.1:9")
    standins.up()
    done = standins.run("down", "--timeout", "2")
    assert done.stdout.splitlines()[0] == "router: killed, it did not stop in time"


def test_down_of_what_pdctl_did_not_start(tmp_path: Path) -> None:
    """An attached deployment is refused, not silently left running."""
    (tmp_path / "pd.toml").write_text(
        'name = "lab"\nmodel = "m"\n[[instance]]\nname = "d"\nrole = "decode"\ndialect = "vllm"\nurl = "http://h:1"\n'
    )
    done = pdctl_process.run(tmp_path, "down")
    assert done.returncode == 5
    assert "nothing of 'lab' was started by pdctl on this machine" in done.stderr
    assert not (tmp_path / "state").exists()


def test_down_without_anything(tmp_path: Path) -> None:
    """Nothing deployed is nothing to stop."""
    done = pdctl_process.run(tmp_path, "down")
    assert done.returncode == 0
    assert "nothing is deployed here" in done.stderr


def test_up_for_drills_starts_engines_that_can_be_broken(standins: Standins) -> None:
    """The processes run with the flag, and a deployment that was started without it counts as another one."""
    assert standins.up("--for-drills").returncode == 0
    assert "--enable-failpoints" in kept_argv(standins, "decode-0")
    assert "--enable-failpoints" not in kept_argv(standins, "router")
    assert standins.up().returncode == 5


def kept_argv(standins: Standins, name: str) -> tuple[str, ...]:
    """Return the command line that the process of an instance was started with."""
    seen = shim.observe(standins.folder.paths(name))
    assert seen.record is not None
    return seen.record.argv
