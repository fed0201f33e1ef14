"""How a benchmark ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import signal
from benchmarks.command import run

def main():
    try:
        print("began", flush=True)
        signal.pause()
    finally:
        print("cleared away", flush=True)

run(main)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_was_started(number: signal.Signals, code: int) -> None:
    """Without a traceback."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "began\n"
        child.send_signal(number)
        assert child.communicate(timeout=60) == ("cleared away\n", "")
    assert child.returncode == code


def test_the_code_is_what_was_returned() -> None:
    """For CI: a target that was missed."""
    program = "from benchmarks.command import run; run(lambda: 1)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False).returncode == 1
