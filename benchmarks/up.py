"""From `pdctl up` to the first proven request, and the memory of each engine.

    python -m benchmarks.up [--rounds 3]

The model is cached. Targets: <= 30 s on 2 cores, <= 1.0 GB resident an engine (API and scheduler process together).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path

MB = 1_000_000


def engine_memory_mb() -> dict[str, float]:
    """Return resident MB of each engine under this benchmark's deployment: the API process and its scheduler."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        argv = process.info["cmdline"] or []
        if "--instance" in argv and argv[1:3] == ["-m", "engine"] and str(model_path()) in argv:
            family = [process, *process.children(recursive=True)]
            found[argv[argv.index("--instance") + 1]] = sum(member.memory_info().rss for member in family) / MB
    return found


def main() -> None:
    """Print the time of each round, and the memory after a probe of 4,000 prompt tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port-base", type=int, default=45000)
    options = parser.parse_args()
    describe_machine()
    state = Path(tempfile.mkdtemp(prefix="up-"))
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}

    def pdctl(*arguments: str) -> None:
        command = [sys.executable, "-m", "pdctl", *arguments]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"pdctl {' '.join(arguments)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")

    took = []
    for _ in range(options.rounds):
        started = time.perf_counter()
        pdctl("up", "--model", model_path(), "--port-base", str(options.port_base))
        took.append(time.perf_counter() - started)
        try:
            fresh = engine_memory_mb()
            pdctl("probe", "--prompt-tokens", "4000", "--timeout", "120")
            used = engine_memory_mb()
        finally:
            pdctl("down")
    print(f"up to proven: median {statistics.median(took):.1f} s, max {max(took):.1f} s  target <= 30")
    for name in sorted(used):
        print(f"{name}: {fresh[name]:.0f} MB after start, {used[name]:.0f} MB after 4,000 tokens  target <= 1000")


if __name__ == "__main__":
    run(main)
