"""`pdctl restart` and `history`, as a user calls them, on stand-in engines: real processes, no model.

Stand-ins answer no request, so what is restarted here is never proven: exit 1, outcome not_verified.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.recover.ledger import Ledger, Recovery, Step
from tests.cli.standin_deployment import ENGINE, Standins, standins_in
from tests.waiting import eventually

GO = ("--yes", "--force", "--reason", "test")
TARGETS = ("prefill-0", "decode-0")


@pytest.fixture
def standins(tmp_path: Path) -> Iterator[Standins]:
    """A deployment that runs."""
    for deployment in standins_in(tmp_path):
        done = deployment.up()
        assert done.returncode == 0, done.stderr
        yield deployment


def ledger(standins: Standins) -> Ledger:
    """Return the deployment's ledger."""
    return Ledger(standins.folder.folder)


def only_recovery(standins: Standins) -> Recovery:
    """Return the one recovery there is."""
    (recovery,) = ledger(standins).recoveries()
    return recovery


def engine_processes(standins: Standins) -> list[str]:
    """Return the port of every stand-in process of this deployment on this machine."""
    ports = {str(port) for port in standins.ports.values()}
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = Path(entry.path, "cmdline").read_bytes().decode().split("\0")
                if str(ENGINE) in words and words[1] == "-S":
                    found += [word for word in words if word in ports]
    return sorted(found)


def test_restart_replaces_every_engine_and_leaves_the_router(standins: Standins) -> None:
    """New processes for prefill and decode; the ledger holds every step of each."""
    before = standins.pids()
    done = standins.run("restart", *GO, "-o", "json")
    after = standins.pids()
    assert all(after[name] not in (None, before[name]) for name in TARGETS)
    assert after["router"] == before["router"]
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (1, "not_verified")
    recovery = only_recovery(standins)
    for name in TARGETS:
        steps = [entry.step for entry in recovery.entries if entry.instance == name]
        assert steps == [Step.STOPPED, Step.STARTING, Step.STARTED, Step.READY]


def test_planned_restart_without_reason_is_refused(standins: Standins) -> None:
    """Exit 5, nothing touched, nothing in the ledger."""
    before = standins.pids()
    done = standins.run("restart", "--yes")
    assert done.returncode == 5
    assert "a planned restart needs a reason" in done.stderr
    assert standins.pids() == before
    assert ledger(standins).recoveries() == ()


def test_dry_run_says_what_it_would_do_and_does_nothing(standins: Standins) -> None:
    """Set, losses and what stays are named."""
    before = standins.pids()
    done = standins.run("restart", "--dry-run", "decode-0", *GO[1:])
    assert done.returncode == 0
    assert "restart     decode-0" in done.stdout
    assert "stays       prefill-0, router" in done.stdout
    assert standins.pids() == before


def test_other_flags_are_drift(standins: Standins) -> None:
    """A changed start command is shown and refused, and deployed with --accept-drift."""
    before = standins.pids()
    standins.behave(decode_0="crowd")
    done = standins.run("restart", "decode-0", *GO)
    assert done.returncode == 5
    assert "decode-0: other command line: runs without crowd" in done.stderr
    assert standins.pids() == before
    standins.run("restart", "decode-0", *GO, "--accept-drift")
    assert standins.pids()["decode-0"] != before["decode-0"]


def test_what_cannot_start_again_is_not_stopped(standins: Standins) -> None:
    """Preflight: the start command must be executable."""
    before = standins.pids()
    file = standins.home / "pd.toml"
    file.write_text(file.read_text().replace("python", "no-such-python", 1))
    done = standins.run("restart", "prefill-0", *GO, "--accept-drift")
    assert done.returncode == 5
    assert "cannot be executed" in done.stderr
    assert standins.pids() == before


def test_stubborn_engine_is_killed_with_its_children(standins: Standins) -> None:
    """SIGTERM, deadline, SIGKILL of the whole group; then exactly one of each runs."""
    standins.run("down")
    standins.behave(decode_0="stubborn crowd")
    standins.up()
    done = standins.run("restart", "decode-0", *GO, "--drain", "0.5")
    assert "decode-0 stopped killed" in done.stderr
    assert len(engine_processes(standins)) == 3


def test_instance_that_died_is_started(standins: Standins) -> None:
    """Killed by somebody else: there is nothing to stop, and it comes back."""
    dead = standins.pids()["decode-0"]
    assert dead is not None
    os.kill(dead, signal.SIGKILL)
    eventually(lambda: standins.pids()["decode-0"] is None)
    standins.run("restart", "decode-0", *GO)
    assert standins.pids()["decode-0"] is not None


def test_two_operators_never_both_act(standins: Standins) -> None:
    """One restarts; the other is told who does, with exit 5."""
    with standins.start("restart", *GO) as one, standins.start("restart", *GO) as other:
        errors = {process.returncode: errors for process in (one, other) for _, errors in [process.communicate()]}
    assert set(errors) == {1, 5}
    assert "is recovering 'standins'; nothing was changed" in errors[5]
    assert only_recovery(standins).has(Step.ENDED)
    assert len(engine_processes(standins)) == 3


def test_first_ctrl_c_starts_what_is_down(standins: Standins) -> None:
    """It says so, waits for the engines, verifies nothing and ends with 130; the next call verifies."""
    with standins.start("restart", *GO) as process:
        eventually(lambda: ledger(standins).recoveries() and only_recovery(standins).has(Step.STOPPING))
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "engines are down, starting them first (" in errors
    assert "to finish: pdctl restart --name standins" in errors
    assert all(standins.pids().values())
    assert not only_recovery(standins).has(Step.VERIFYING)
    done = standins.run("restart", "--name", "standins")
    assert "is half done; finishing it first" in done.stderr
    assert only_recovery(standins).has(Step.ENDED)


def test_second_ctrl_c_leaves_it_to_the_background(standins: Standins) -> None:
    """The client ends at once with the finishing command; the host starts what it stopped."""
    standins.run("down")
    standins.behave(decode_0="stubborn")
    standins.up()
    with standins.start("restart", *GO, "--drain", "2") as process:
        eventually(lambda: ledger(standins).recoveries() and only_recovery(standins).has(Step.STOPPING))
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        eventually(lambda: "starting them first" in process.stderr.readline())
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "in the background; to finish: pdctl restart --name standins" in errors
    eventually(lambda: only_recovery(standins).has(Step.EXECUTED))
    assert all(standins.pids().values())


def test_client_that_is_killed_leaves_no_engine_down(standins: Standins) -> None:
    """The host has the whole plan: it goes on alone."""
    with standins.start("restart", *GO) as process:
        eventually(lambda: ledger(standins).recoveries() and only_recovery(standins).has(Step.STOPPING))
        process.kill()
        process.communicate(timeout=60)
    eventually(lambda: only_recovery(standins).has(Step.EXECUTED))
    assert all(standins.pids().values())


def test_history_lists_who_why_and_what_came_of_it(standins: Standins) -> None:
    """Newest first; the JSON form has every step."""
    standins.run("restart", "decode-0", *GO)
    told = standins.run("history").stdout
    assert "not_verified" in told
    assert "pdctl restart decode-0: test" in told
    (entry,) = json.loads(standins.run("history", "-o", "json").stdout)
    assert [line["step"] for line in entry["entries"]][-2:] == ["verifying", "ended"]
