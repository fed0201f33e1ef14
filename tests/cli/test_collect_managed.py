"""Collections of what `pdctl up` runs: how processes ended, from the shim's records, and its logs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.collect.session import Collector
from pdctl.deployment import files
from pdctl.evidence.directory import read_directory
from pdctl.evidence.model import InstanceEvidence
from pdctl.managers import shim
from tests.cli.standin_deployment import Standins, standins_in
from tests.waiting import eventually


@pytest.fixture
def standins(tmp_path: Path) -> Iterator[Standins]:
    yield from standins_in(tmp_path)


def collected(standins: Standins) -> dict[str, InstanceEvidence]:
    out = standins.home / "incident"
    deployment = files.load(standins.home / "pd.toml")
    Collector(deployment, out, folder=standins.folder).take(interval_s=0.2, timeout_s=15)
    evidence = read_directory(out)
    # The stand-in answers JSON to every question, so also where metrics or a flight recorder are expected.
    no_json = ("metrics", "flight.bin")
    assert [each for each in evidence.problems if not any(word in each.place.file for word in no_json)] == []
    return {instance.name: instance for instance in evidence.instances}


def test_a_killed_engine_is_gone_with_its_signal(standins: Standins) -> None:
    """How it ended is known from the shim's record; its log is still there; the others live."""
    assert standins.up().returncode == 0
    pid = standins.pids()["decode-0"]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: shim.observe(standins.folder.paths("decode-0")).pid is None)
    seen = collected(standins)
    (gone,) = seen["decode-0"].processes
    assert (gone.pid, gone.state, gone.signal, gone.exit_code) == (pid, "gone", 9, None)
    assert gone.started_at is not None
    assert seen["decode-0"].gets[0].error == "refused"
    assert any("listening on" in line.message for line in seen["decode-0"].log or ())
    living = seen["prefill-0"].processes[0]
    assert (living.state, living.pid) == ("S", standins.pids()["prefill-0"])
    assert living.restarts == 0


def test_an_engine_that_ended_by_itself_has_its_exit_code(standins: Standins) -> None:
    """The code and the last words of an engine that failed in its start are kept."""
    standins.behave(prefill_0="dies")
    assert standins.up("--no-wait").returncode in (0, 1)
    eventually(lambda: shim.observe(standins.folder.paths("prefill-0")).life is shim.Life.EXITED)
    seen = collected(standins)
    assert [(process.state, process.exit_code) for process in seen["prefill-0"].processes] == [("gone", 7)]
    assert "RuntimeError: the weights are not weights" in [line.message for line in seen["prefill-0"].log or ()]
