"""`make bench` works in a checkout, where nothing but the two packages is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_benchmark_is_run_with_the_arguments_that_were_given() -> None:
    """And finds what it shares with the others."""
    made = [word for stamp in ("engine", "test") for word in ("-o", f"{sys.prefix}/{stamp}.stamp")]
    given = ["bench", f"VENV={sys.prefix}", "BENCH=schedules", "BENCH_ARGS=--help"]
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "MAKEFLAGS"}}
    run = subprocess.run(
        ["make", *made, *given], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "usage: schedules.py" in run.stdout
