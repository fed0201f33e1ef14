"""How soon `pdctl watch --daemon` says that requests stand still, and what watching costs.

    python -m benchmarks.watch [--rounds 3] [--streams 0] [--model PATH]

Time to detect: from the SIGSTOP of decode until the daemon's confirmed verdict is *wedged*, less the patience of a
stall (10 s). Target <= 10 s beyond patience at the default cadence. Cost of the canary: processor seconds that engines
and router spend on one, less what they spend idle in the same time, over the seconds of all cores between two canaries.
Target < 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import time
from typing import IO

import psutil

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path
from benchmarks.recovery import Deployment, with_streams
from pdctl.cli.watch import DAEMON_PROBES_EVERY_S
from pdctl.watch.canary import PROMPT_TOKENS
from pdctl.watch.window import PATIENCE_S

CANARIES = 10
IDLE_S = 20.0
NAMES = ("prefill-0", "decode-0", "router")


def busy_s(processes: list[psutil.Process]) -> float:
    """Return the processor seconds they have spent so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def confirmed(lines: IO[str], verdict: str) -> float:
    """Return when the daemon first says that verdict from now on, by this process's clock."""
    for line in lines:
        if json.loads(line)["confirmed"] == verdict:
            return time.perf_counter()
    raise SystemExit("the daemon ended")


def detection_s(deployment: Deployment, lines: IO[str]) -> float:
    """Stop decode, wait for the alarm, let it go on, wait until all is well."""
    confirmed(lines, "healthy")
    decode = deployment.processes("decode-0")
    stopped_at = time.perf_counter()
    for process in decode:
        process.send_signal(signal.SIGSTOP)
    try:
        return confirmed(lines, "wedged") - stopped_at
    finally:
        for process in decode:
            process.send_signal(signal.SIGCONT)


def canary_cost_s(deployment: Deployment) -> float:
    """Return processor seconds of engines and router for one canary."""
    processes = [process for name in NAMES for process in deployment.processes(name)]
    before, began = busy_s(processes), time.perf_counter()
    time.sleep(IDLE_S)
    idle_rate = (busy_s(processes) - before) / (time.perf_counter() - began)
    before, began = busy_s(processes), time.perf_counter()
    deployment.run("probe", "--direct", "--count", str(CANARIES), "--prompt-tokens", str(PROMPT_TOKENS))
    spent_s = busy_s(processes) - before - idle_rate * (time.perf_counter() - began)
    return spent_s / CANARIES


def main() -> None:
    """Print both figures, and the daemon's own share of the machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--model", default=None)
    parser.add_argument("--port-base", type=int, default=31400)
    options = parser.parse_args()
    describe_machine()
    cores = os.cpu_count() or 1
    deployment = Deployment(options.model or str(model_path()), options.port_base)
    deployment.up()
    try:
        cost_s = canary_cost_s(deployment)
        listen = f"127.0.0.1:{options.port_base + 70}"
        daemon = deployment.start("watch", "--daemon", "--listen", listen, "-o", "json")
        with daemon:
            lines = daemon.stdout
            assert lines is not None
            began = time.perf_counter()
            took = [
                with_streams(deployment, options.streams, lambda: detection_s(deployment, lines))
                for _ in range(options.rounds)
            ]
            own = busy_s([psutil.Process(daemon.pid)]) / (time.perf_counter() - began) / cores
            daemon.send_signal(signal.SIGTERM)
    finally:
        deployment.run("down", "--timeout", "0")
    beyond = [seconds - PATIENCE_S for seconds in took]
    print(f"time to detect beyond patience: median {statistics.median(beyond):.1f} s, max {max(beyond):.1f} s")
    print("  target <= 10 s; rounds: " + ", ".join(f"{seconds:.1f}" for seconds in beyond))
    share = cost_s / (DAEMON_PROBES_EVERY_S * cores)
    print(f"canary: {cost_s:.3f} processor seconds each {DAEMON_PROBES_EVERY_S:.0f} s: {share:.2%} of {cores} cores")
    print(f"  target < 1 %; the daemon itself: {own:.2%} of {cores} cores")


if __name__ == "__main__":
    run(main)
