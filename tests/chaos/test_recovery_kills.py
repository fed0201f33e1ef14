"""Kill -9 pdctl at a step boundary, then call it again: it ends, everything runs, and nothing runs twice.

The short form kills client and executor together after every other line of the ledger. `PDCTL_CHAOS=long` kills each
of them and both, before and after every line (52 runs), as `make chaos-recovery` does; `PDCTL_CHAOS_LINES=20-40` is a
piece of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.recover.ledger import Ledger, Outcome
from tests.chaos.pieces import piece
from tests.cli.standin_deployment import Standins, standins_in
from tests.cli.test_restart import GO as CALM
from tests.cli.test_restart import TARGETS, engine_processes
from tests.waiting import eventually

KILLER = Path(__file__).parents[1] / "fakes" / "killed_at"
CLIENT_LINES = (1, 2, 14, 15)
EXECUTOR_LINES = tuple(range(3, 14))
GO = (*CALM, "--accept-drift")
"""The killer stands in PYTHONPATH, which engines inherit from whoever restarts them."""
IS_LONG = os.environ.get("PDCTL_CHAOS") == "long"
SHORT = [("client", line, "after") for line in CLIENT_LINES[:-1]] + [("both", line, "after") for line in EXECUTOR_LINES]
LONG = [
    (who, line, when)
    for who, lines in (("client", CLIENT_LINES), ("executor", EXECUTOR_LINES), ("both", EXECUTOR_LINES))
    for line in lines
    for when in ("before", "after")
]
EVERY = LONG if IS_LONG else SHORT[::2]
CASES = [EVERY[number] for number in piece("PDCTL_CHAOS_LINES", len(EVERY))]


@pytest.fixture
def standins(tmp_path: Path) -> Iterator[Standins]:
    """A deployment that runs."""
    for deployment in standins_in(tmp_path):
        done = deployment.up()
        assert done.returncode == 0, done.stderr
        yield deployment


@pytest.mark.parametrize(("who", "line", "when"), CASES)
def test_killed_at_any_step_it_is_finished_by_the_next_call(standins: Standins, who: str, line: int, when: str) -> None:
    """Every target is a new process, each exists once, and the ledger has no open end."""
    before = standins.pids()
    repository = Path(__file__).parents[2]
    standins.run(
        "restart",
        *GO,
        PDCTL_TEST_KILL=f"{who}:{line}:{when}:{standins.home / 'killed'}",
        PYTHONPATH=f"{KILLER}:{repository}",
    )
    kept = Ledger(standins.folder.folder)
    assert (standins.home / "killed").exists()
    if kept.unfinished() is not None:
        standins.run("restart", *GO)
    eventually(lambda: kept.unfinished() is None)
    # Killed before its first line it has left nothing, and before a signal nothing that had to be finished.
    if not kept.recoveries() or kept.recoveries()[-1].outcome is Outcome.ABANDONED:
        standins.run("restart", *GO)
    after = standins.pids()
    assert kept.recoveries()[-1].outcome is Outcome.NOT_VERIFIED
    assert all(after[name] not in (None, before[name]) for name in TARGETS)
    assert engine_processes(standins) == sorted(str(port) for port in standins.ports.values())
