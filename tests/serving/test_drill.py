"""Whole drills on real engines behind the real router; the other drills: `pdctl drill --all`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.serving.served import Served, port_base

pytestmark = pytest.mark.slow


def processes_of(home: Path) -> list[list[str]]:
    """Return the command line of every process that was started for this home."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if any(str(home) in word for word in command) and process.pid != os.getpid():
            found.append(command)
    return found


@pytest.mark.parametrize(
    ("drill", "code", "subject"),
    [("mass-abort", "PD0301", "prefill-0"), ("desync", "PD0501", "decode-0"), ("zombie", "PD0103", "decode-0")],
)
def test_a_fault_is_named_and_service_proven(
    tiny_model_dir: Path, tmp_path: Path, drill: str, code: str, subject: str
) -> None:
    """The true cause first, not ruled out, proven; nothing is left, and no default changed."""
    served = Served(tmp_path)
    done = served.pdctl(
        "drill", drill, "--auto", "--model", str(tiny_model_dir), "--port-base", str(port_base()), "-o", "json"
    )
    assert done.stdout, done.stderr
    score = json.loads(done.stdout)
    assert (score["named"], score["subject"], score["end"]) == (code, subject, "proven"), done.stderr
    assert code not in score["ruled_out"]
    assert (done.returncode, score["is_passed"]) == (0, True)
    assert processes_of(tmp_path) == []
    assert not (tmp_path / "state" / "pdctl" / "last").exists()


def test_ctrl_c_after_the_hand_over_leaves_nothing(tiny_model_dir: Path, tmp_path: Path) -> None:
    """starved: it says what to do; a restart in another terminal would find it; exit 130, no process is left."""
    served = Served(tmp_path)
    drill = served.start("drill", "starved", "--model", str(tiny_model_dir), "--port-base", str(port_base()))
    try:
        lines = _until_told(drill, "the solution:")
        assert any("pdctl diagnose --name drill" in line for line in lines)
        report = served.json("diagnose", "--name", "drill")
        assert report["causes"][0]["code"] == "PD0402"
    finally:
        drill.send_signal(signal.SIGINT)
        drill.communicate(timeout=60)
    assert drill.returncode == 130
    assert processes_of(tmp_path) == []


def _until_told(process: subprocess.Popen[str], words: str) -> list[str]:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return lines
    pytest.fail(f"it ended before it said {words!r}:\n{''.join(lines)}")
