"""CPU time of every `--help`, against the budget of 150 ms: `python -m benchmarks.cli_cpu`. Takes about 10 s."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

from benchmarks.command import run

BUDGET_MS = 150
RUNS = 10
CODE = "import sys; from pdctl.cli import main; sys.exit(main())"
CALLS = (["--version"], ["--help"], *([name, "--help"] for name in ("up", "down", "status", "logs", "attach", "probe")))


def cpu_ms(arguments: list[str]) -> float:
    """Return user + system time of one call in milliseconds."""
    # As installed: with compiled modules kept.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", CODE, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    """Print a line a call."""
    for call in CALLS:
        median_ms = statistics.median(cpu_ms(call) for _ in range(RUNS))
        name = "pdctl " + " ".join(call)
        print(f"{name:<22} {median_ms:5.0f} ms CPU   {median_ms / BUDGET_MS:.2f} of the budget")


if __name__ == "__main__":
    run(main)
