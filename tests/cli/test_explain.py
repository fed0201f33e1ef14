"""`pdctl explain`: the runbook of a finding, without network or deployment."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

from tests.cli import pdctl_process

REPOSITORY = Path(__file__).parents[2]
RUNBOOK = REPOSITORY / "pdctl" / "runbooks" / "PD0301-bootstrap-thread-dead.md"


def test_a_pipe_gets_the_runbook_as_it_is_written(tmp_path: Path) -> None:
    """So that it can be pasted and searched."""
    done = pdctl_process.run(tmp_path, "explain", "PD0301")
    assert (done.returncode, done.stdout, done.stderr) == (0, RUNBOOK.read_text(), "")


def test_a_label_prints_all_its_findings(tmp_path: Path) -> None:
    """Out of memory is two findings."""
    text = pdctl_process.run(tmp_path, "explain", "oom").stdout
    assert [line[2:8] for line in text.splitlines() if line.startswith("# ")] == ["PD0702", "PD0703"]


def test_json_carries_the_catalogue_beside_the_text(tmp_path: Path) -> None:
    """One object a finding."""
    rows = json.loads(pdctl_process.run(tmp_path, "explain", "PD0301", "-o", "json").stdout)
    assert [(row["code"], row["action"], row["markdown"]) for row in rows] == [
        ("PD0301", "restart_pair", RUNBOOK.read_text())
    ]


def test_an_unknown_code_is_wrong_usage(tmp_path: Path) -> None:
    """It names the nearest and where they are listed."""
    done = pdctl_process.run(tmp_path, "explain", "PD0804")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no finding 'PD0804'" in done.stderr and "PD0805" in done.stderr and "pdctl codes" in done.stderr


def test_a_terminal_gets_it_drawn(tmp_path: Path) -> None:
    """Headings without their marks, in 80 columns."""
    leader, follower = pty.openpty()
    environment = pdctl_process.environment(tmp_path, TERM="xterm-256color") | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run(
        [*pdctl_process.COMMAND, "explain", "PD0907"], cwd=tmp_path, env=environment, stdout=follower, check=True
    )
    os.close(follower)
    drawn = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "What it means" in drawn and "\x1b[" in drawn
    assert "## " not in drawn and "```" not in drawn
