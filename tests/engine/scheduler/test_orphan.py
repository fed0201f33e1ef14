"""A rank whose API process has gone before it could ask for its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_rank_without_its_api_process_ends_at_once(tmp_path: Path) -> None:
    """Whoever is its parent by then is not the process that it was started for: it loads nothing."""
    command = (sys.executable, "-m", "engine.scheduler", "--run-dir", str(tmp_path), "--parent", str(os.getpid() + 1))
    done = subprocess.run(command, input=b"{}", capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().strip().splitlines()[-1] == "the API process has gone already"
