"""Run the real command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = (sys.executable, "-c", "import sys; from pdctl.cli import main; sys.exit(main())")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment whose state and cache lie below `home`; proxies would lead nowhere."""
    folders = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache")}
    nowhere = "http://127.0.0.1:9"
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return inherited | folders | {"HTTP_PROXY": nowhere, "http_proxy": nowhere, "COLUMNS": "80"} | more


def start(home: Path, *arguments: str, stdin: int | None = None, **more: str) -> subprocess.Popen[str]:
    """Start pdctl in the folder `home`; `stdin` is a descriptor."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=home,
        env={"PYTHONPATH": str(Path(__file__).parents[2])} | environment(home, **more),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(home: Path, *arguments: str, limit_s: float = 60.0, **more: str) -> subprocess.CompletedProcess[str]:
    """Run pdctl to its end."""
    process = start(home, *arguments, **more)
    out, err = process.communicate(timeout=limit_s)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
