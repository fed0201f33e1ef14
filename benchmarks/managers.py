"""What systemd and ssh add to a recovery: one planned restart of decode, under the shim, in units, and in units by ssh.

    python -m benchmarks.managers [--rounds 3]        (as root; see tests/machines)

Alternated. Counted is the time from the command to proven service without the engine's own loading, which is the
same for all. Target: systemd and ssh add at most 3 s.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path
from tests.machines.booted import booted
from tests.machines.served_by_systemd import ServedBySystemd
from tests.machines.ssh_server import ssh_hosts
from tests.serving.served import served_by_pdctl

RESTART = ("restart", "decode-0", "--yes", "--force", "--reason", "benchmark", "--drain", "5")
"""The same again and again is what the breaker stops, hence --force."""
TARGET_S = 3.0


def overhead_s(result: Any, loading_s: float) -> float:
    """Return how long a restart took without the engine's loading; ends the benchmark where it did not succeed."""
    if result["outcome"] != "recovered":
        raise SystemExit(f"{result['recovery']} ended with {result['outcome']}: {result['detail']}")
    return float(sum(phase["took_s"] for phase in result["phases"]) - loading_s)


def loading_s(history: Any, recovery: str) -> float:
    """Return how long the engine took from its start until it was well."""
    entries = next(item["entries"] for item in history if item["recovery"] == recovery)
    return float(next(entry["took_s"] for entry in entries if entry["step"] == "ready"))


def measured(home: Path, rounds: int) -> dict[str, list[float]]:
    """Return what each way took, in seconds."""
    for name in ("shim", "served", "ssh"):
        (home / name).mkdir()
    model = Path(shutil.copy(model_path(), home / "served"))
    with (
        booted(home, f"pdctl-bench-{os.getpid()}") as machine,
        ssh_hosts(home / "ssh") as ssh,
        served_by_pdctl(home / "shim", model) as shim,
    ):
        units = ServedBySystemd(machine, home / "served")
        units.install(model)
        units.until_well()
        ssh.add("box", machine=machine)
        ways: dict[str, Callable[..., Any]] = {
            "shim": shim.json,
            "systemd": units.json,
            "systemd over ssh": lambda *words: units.pdctl_from_outside(ssh, *words),
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for name, ask in list(ways.items()) * rounds:
            result = ask(*RESTART)
            took[name].append(overhead_s(result, loading_s(ask("history"), result["recovery"])))
        machine.run("systemctl", "kill", "--signal=SIGKILL", "pd-default@*.service")
    return took


def main() -> None:
    """Measure, and print the medians and what is added."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if os.getuid() != 0 or shutil.which("systemd-nspawn") is None:
        print("managers: not measured: needs root and Debian's systemd-container")
        return
    describe_machine()
    took = measured(Path(tempfile.mkdtemp(prefix="managers-")), rounds)
    base_s = statistics.median(took["shim"])
    for name, values in took.items():
        median_s = statistics.median(values)
        print(f"{name:18s} {median_s:6.1f} s   {median_s - base_s:+5.1f} s   (target at most +{TARGET_S:g} s)")


if __name__ == "__main__":
    run(main)
