"""The systemd manager against a real systemd and its journal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pdctl.deployment.model import Instance, Role
from pdctl.errors import PdctlError
from pdctl.managers import systemd
from pdctl.recover.plan import Target
from pdctl.recover.unit_manager import UnitManager
from tests.machines.booted import Booted
from tests.machines.in_machine import InMachine
from tests.waiting import eventually

STUBBORN = "trap '' TERM; echo up; while :; do sleep 1; done"
UNITS = {
    "calm@.service": "[Service]\nExecStart=/bin/sleep 1000\nRestart=on-failure\n",
    "stubborn.service": f'[Service]\nExecStart=/bin/sh -c "{STUBBORN}"\nTimeoutStopSec=60\n',
    "crashing.service": (
        "[Unit]\nStartLimitBurst=3\nStartLimitIntervalSec=600\n"
        '[Service]\nExecStart=/bin/sh -c "echo no weights here; exit 7"\nRestart=on-failure\nRestartSec=100ms\n'
    ),
    "tied-a.service": "[Unit]\nPartOf=between.target\n[Service]\nExecStart=/bin/sleep 1000\n",
    "tied-b.service": "[Unit]\nWants=between.target\n[Service]\nExecStart=/bin/sleep 1000\n",
    "between.target": "[Unit]\nPartOf=tied-b.service\n",
    "refusing.service": "[Unit]\nRefuseManualStop=yes\n[Service]\nExecStart=/bin/sleep 1000\n",
}


@pytest.fixture(scope="module")
def manager(machine: Booted) -> UnitManager:
    """A manager of all these units, each called by its stem."""
    machine.install((f"/etc/systemd/system/{name}", text) for name, text in UNITS.items())
    (machine.root / "etc/systemd/system/masked.service").symlink_to("/dev/null")
    names = ("calm@one", "stubborn", "crashing", "tied-a", "tied-b", "refusing", "masked", "absent")
    return UnitManager(InMachine(machine), {name: f"{name}.service" for name in names})


def target(name: str) -> Target:
    """Return a target of that name."""
    return Target(instance=instance(name))


def instance(name: str) -> Instance:
    """Return an instance of that name."""
    return Instance(name=name, role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:1", manager="systemd")


def test_unit_is_started_seen_and_stopped(manager: UnitManager, machine: Booted) -> None:
    """Its pid and invocation are systemd's own; a second start is another run."""
    first = manager.start(target("calm@one"))
    assert first.is_running
    assert first.pid == machine.pid("calm@one.service")
    assert first.run == machine.shown("calm@one.service", "InvocationID")
    assert manager.look("calm@one").run == first.run
    manager.ask_to_stop("calm@one")
    assert manager.await_stopped("calm@one", 10) is False
    assert manager.look("calm@one").is_down
    assert manager.start(target("calm@one")).run not in (None, first.run)


def test_process_that_ignores_sigterm_is_killed_at_our_deadline(manager: UnitManager) -> None:
    """Not at the minute that its unit would wait."""
    manager.start(target("stubborn"))
    eventually(lambda: "up" in manager.last_words("stubborn"))
    manager.ask_to_stop("stubborn")
    assert manager.await_stopped("stubborn", 0.2) is True
    assert manager.look("stubborn").is_down


def test_frozen_process_is_not_waited_for(manager: UnitManager, machine: Booted) -> None:
    """Its ranks would stay asleep: the drain is skipped. (A minute, if it were not.)"""
    seen = manager.start(target("stubborn"))
    machine.run("kill", "-STOP", str(seen.pid))
    manager.ask_to_stop("stubborn")
    assert manager.await_stopped("stubborn", 60) is True


def test_crash_loop_is_told_counted_and_forgiven(manager: UnitManager, machine: Booted) -> None:
    """What systemd gave up on is down, with its exit code and its last words; a start of ours is not refused."""
    with pytest.raises(PdctlError, match="failed"):
        for _ in range(100):  # the first looks may still find one of its short lives
            manager.start(target("crashing"))
    eventually(lambda: manager.look("crashing").words == "failed (exit-code): exited with code 7")
    eventually(lambda: manager.look("crashing").is_down)
    assert manager.look("crashing").restarts == int(machine.shown("crashing.service", "NRestarts"))
    eventually(lambda: "no weights here" in manager.last_words("crashing"))


def test_journal_of_one_run_is_that_of_no_other(manager: UnitManager, machine: Booted) -> None:
    """The run before is not quoted as the cause of this one's end."""
    path = "/etc/systemd/system/calm@one.service.d/say.conf"
    machine.install([(path, "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo first words; exec sleep 1000'\n")])
    manager.start(target("calm@one"))
    machine.systemctl("restart", "calm@one.service")
    eventually(lambda: "first words" in manager.last_words("calm@one"))
    machine.install([(path, "[Service]\nExecStart=\nExecStart=/bin/sh -c 'echo other words; exec sleep 1000'\n")])
    machine.systemctl("restart", "calm@one.service")
    eventually(lambda: "other words" in manager.last_words("calm@one"))
    assert "first words" not in manager.last_words("calm@one")
    (machine.root / path.lstrip("/")).unlink()
    machine.systemctl("daemon-reload")


def test_what_cannot_start_again_is_told_before_it_is_stopped(manager: UnitManager) -> None:
    """Masked, not there, or refusing; what is fine has no problem."""
    found = {name: list(manager.problems(instance(name))) for name in ("masked", "absent", "refusing", "calm@one")}
    assert "unit masked.service is masked" in found["masked"][0]
    assert "unit absent.service is not-found" in found["absent"][0]
    assert "refuses to be stopped by hand (RefuseManualStop=yes)" in found["refusing"][0]
    assert found["calm@one"] == []


def test_units_that_stop_along_are_found_through_others(manager: UnitManager) -> None:
    """The target between is part of b, and a of the target; a drags nobody along."""
    for name in ("tied-a", "tied-b"):
        manager.start(target(name))
    assert manager.stopped_with("tied-b") == ("tied-a",)
    assert manager.stopped_with("tied-a") == ()


def test_unit_file_that_systemd_has_not_read_is_drift(manager: UnitManager, machine: Booted) -> None:
    """A restart would start the old one; once read, it is newer than the process."""
    manager.start(target("calm@one"))
    assert manager.drift(instance("calm@one")) == ()
    file = machine.root / "etc/systemd/system/calm@.service"
    machine.write("/etc/systemd/system/calm@.service", UNITS["calm@.service"] + "# changed\n")
    later = systemd.look(manager.host, "calm@one.service").started_at or 0.0
    _touch(file, later + 60)
    found = [item.what for item in manager.drift(instance("calm@one"))]
    assert found[0].startswith("unit calm@one.service changed on disk and systemd has not read it")
    machine.systemctl("daemon-reload")
    found = [item.what for item in manager.drift(instance("calm@one"))]
    assert len(found) == 1
    assert found[0].startswith("unit file: /etc/systemd/system/calm@.service changed ")
    assert found[0].endswith(" 60 s after the process started")


def test_weights_newer_than_the_process_are_drift(manager: UnitManager, machine: Booted) -> None:
    """By the command line that really runs."""
    weights = machine.home / "weights.gguf"
    weights.write_bytes(b"x")
    _touch(weights, 1e9)
    script = "import time; time.sleep(1000)"
    command = f'{sys.executable} -c "{script}" --model {weights}'
    path = "/etc/systemd/system/calm@one.service.d/weights.conf"
    machine.install([(path, f"[Service]\nExecStart=\nExecStart={command}\n")])
    machine.systemctl("restart", "calm@one.service")
    later = systemd.look(manager.host, "calm@one.service").started_at or 0.0
    _touch(weights, later + 30)
    whats = [item.what for item in manager.drift(instance("calm@one"))]
    assert [what for what in whats if what.startswith(f"weights: {weights} changed")] != []


def test_stop_that_is_refused_says_why_and_what_to_do(manager: UnitManager) -> None:
    """systemd's own words."""
    manager.start(target("refusing"))
    with pytest.raises(PdctlError, match="Operation refused") as caught:
        manager.ask_to_stop("refusing")
    assert caught.value.hint == "the unit refuses to be stopped or started by hand: see RefuseManualStop= in it"


def _touch(path: Path, at: float) -> None:
    os.utime(path, (at, at))
