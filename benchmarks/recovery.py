"""From a wedge to proven service, against `pdctl down; pdctl up`, alternated, with streams in flight.

    python -m benchmarks.recovery [--rounds 3] [--streams 8] [--model PATH]

The wedge is a prefill that is stopped by a signal. Targets: <= 1.3 x (down; up) + the snapshot budget (10 s), and
<= 25 s for SmolLM2 1P1D on 2 cores; a snapshot <= 5 s. Verified is when the ledger's last line says so; the command
ends later, with the archive for others. The router's share is the time between the last direct proof and the proof
through the router.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import httpx
import psutil

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path

SNAPSHOT_BUDGET_S = 10.0
STREAM_TOKENS = 400
AGAIN = ("--force", "--reason", "benchmark")
"""The same cause again and again is what the breaker stops."""
BEFORE_FAULT_S = 2.0


class Deployment:
    """A deployment in a state folder of its own."""

    def __init__(self, model: str, port_base: int) -> None:
        self._model = model
        self.port_base = port_base
        self._environment = {**os.environ, "XDG_STATE_HOME": tempfile.mkdtemp(prefix="recovery-")}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pdctl, to be read while it runs."""
        command = [sys.executable, "-m", "pdctl", *arguments]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)

    def run(self, *arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
        """Run pdctl; stop the benchmark with its words where it fails."""
        command = [sys.executable, "-m", "pdctl", *arguments]
        ran = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        if ran.returncode not in allowed:
            raise SystemExit(f"pdctl {' '.join(arguments)} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def up(self) -> None:
        """Start it and prove it."""
        self.run("up", "--model", self._model, "--port-base", str(self.port_base))

    def processes(self, name: str) -> list[psutil.Process]:
        """Return an instance's process and its children."""
        rows = json.loads(self.run("status", "-o", "json", allowed=(0, 1)))["instances"]
        root = psutil.Process(next(row["pid"] for row in rows if row["name"] == name))
        return [root, *root.children(recursive=True)]

    def ended_at(self, recovery: str) -> float:
        """Return when a recovery was proven, Unix time, by the ledger."""
        history = json.loads(self.run("history", "-o", "json"))
        entries = next(item["entries"] for item in history if item["recovery"] == recovery)
        return next(float(entry["at"]) for entry in entries if entry["step"] == "ended")

    def stop_prefill(self) -> None:
        """Make the wedge."""
        for process in self.processes("prefill-0"):
            process.send_signal(signal.SIGSTOP)


def with_streams(deployment: Deployment, count: int, measured: Callable[[], float]) -> float:
    """Return what `measured` returns while streams are in flight."""
    url = f"http://127.0.0.1:{deployment.port_base + 1}/v1/completions"

    def stream() -> None:
        body = {"model": "default", "prompt": "Once upon a time", "max_tokens": STREAM_TOKENS, "stream": True}
        try:
            with httpx.stream("POST", url, json=body, timeout=120, trust_env=False) as answer:
                for _ in answer.iter_bytes():
                    pass
        except httpx.HTTPError:
            return  # the restart ends it: that is its part

    threads = [threading.Thread(target=stream, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(BEFORE_FAULT_S)
    return measured()


def down_and_up(deployment: Deployment) -> float:
    """Return seconds of the plain way."""
    deployment.stop_prefill()
    began = time.perf_counter()
    deployment.run("down", "--timeout", "5")
    deployment.up()
    return time.perf_counter() - began


def recovered(deployment: Deployment, phases: dict[str, list[float]]) -> float:
    """Return seconds from the command to verified service."""
    deployment.stop_prefill()
    began = time.time()
    done = json.loads(deployment.run("snapshot-and-restart", "--yes", *AGAIN, "-o", "json"))
    ended = time.time()
    if done["outcome"] != "recovered":
        raise SystemExit(f"not recovered: {done}")
    verified = deployment.ended_at(done["recovery"])
    for phase in done["phases"]:
        phases.setdefault(phase["name"], []).append(phase["took_s"])
    phases.setdefault("(of which by the router)", []).append(done["verification"]["router"]["took_s"])
    phases.setdefault("(after it, until the command's end)", []).append(ended - verified)
    return verified - began


def main() -> None:
    """Alternate the two ways and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--model", default=None)
    parser.add_argument("--port-base", type=int, default=31200)
    options = parser.parse_args()
    describe_machine()
    deployment = Deployment(options.model or str(model_path()), options.port_base)
    plain: list[float] = []
    ours: list[float] = []
    phases: dict[str, list[float]] = {}
    deployment.up()
    try:
        for _ in range(options.rounds):
            plain.append(with_streams(deployment, options.streams, lambda: down_and_up(deployment)))
            ours.append(with_streams(deployment, options.streams, lambda: recovered(deployment, phases)))
        began = time.perf_counter()
        deployment.run("snapshot", allowed=(0, 3))
        snapshot_s = time.perf_counter() - began
    finally:
        deployment.run("down", "--timeout", "0")
    for name, times in phases.items():
        print(f"  {name}: median {statistics.median(times):.1f} s")
    ours_s, plain_s = statistics.median(ours), statistics.median(plain)
    limit_s = 1.3 * plain_s + SNAPSHOT_BUDGET_S
    print(f"down; up: median {plain_s:.1f} s    wedge to verified: median {ours_s:.1f} s, max {max(ours):.1f} s")
    print(f"ratio {ours_s / plain_s:.2f}; limit 1.3 x + {SNAPSHOT_BUDGET_S:.0f} s = {limit_s:.1f} s, and 25 s")
    print(f"snapshot with stacks: {snapshot_s:.1f} s  target <= 5")


if __name__ == "__main__":
    run(main)
