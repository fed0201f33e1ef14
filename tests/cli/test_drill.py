"""`pdctl drill` as far as it goes without breaking anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import pdctl_process
from tests.cli.standin_deployment import Standins, standins_in


@pytest.fixture
def standins(tmp_path: Path) -> Iterator[Standins]:
    """A deployment that can be started."""
    yield from standins_in(tmp_path)


def test_list_shows_every_drill_with_its_code(tmp_path: Path) -> None:
    """As a table and as JSON."""
    done = pdctl_process.run(tmp_path, "drill", "--list")
    assert done.returncode == 0
    assert "mass-abort" in done.stdout
    rows = json.loads(pdctl_process.run(tmp_path, "drill", "--list", "-o", "json").stdout)
    assert {"name": "mass-abort", "code": "PD0301"}.items() <= rows[0].items()
    assert all(row["name"] in done.stdout for row in rows)


@pytest.mark.parametrize(
    "arguments", [(), ("mass-abort", "--all"), ("mass-hysteria",), ("mass-abort", "--name", "a", "--file", "b")]
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit 2 with what to write instead; nothing is started."""
    done = pdctl_process.run(tmp_path, "drill", *arguments)
    assert done.returncode == 2
    assert "  -> " in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_deployment_that_is_not_for_drills_is_refused(standins: Standins) -> None:
    """Exit 5; its processes are the ones that were."""
    standins.up()
    before = standins.pids()
    done = standins.run("drill", "silent-peer", "--name", "standins")
    assert done.returncode == 5
    assert "was not started for drills; nothing was done" in done.stderr
    assert standins.pids() == before


def test_a_drill_with_settings_of_its_own_cannot_borrow(standins: Standins) -> None:
    """Exit 2: its engines would have to be started otherwise."""
    standins.up("--for-drills")
    done = standins.run("drill", "short-timeout", "--name", "standins")
    assert done.returncode == 2
    assert "needs engines with other settings" in done.stderr


def test_a_drill_between_ranks_cannot_borrow_engines_of_one(standins: Standins) -> None:
    """Exit 5, with the command that starts such engines; its processes are the ones that were."""
    standins.up("--for-drills")
    before = standins.pids()
    done = standins.run("drill", "desync", "--name", "standins")
    assert done.returncode == 5
    assert "pdctl up --for-drills --tp 2" in done.stderr
    assert standins.pids() == before
