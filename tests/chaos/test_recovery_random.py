"""Kill -9 client, executor or both at a random moment of a restart of real engines; the next call proves service.

Prints its seed; `PDCTL_CHAOS_SEED` replays it, `PDCTL_CHAOS_KILLS=100` is the long form.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.serving.served import Served, served_by_pdctl

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("PDCTL_CHAOS_KILLS", "2"))
SEED = int(os.environ.get("PDCTL_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
LONGEST_S = 14.0
"""About what a whole restart with its proof takes."""


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """1 prefill, 1 decode and a router."""
    with served_by_pdctl(tmp_path_factory.mktemp("chaos"), tiny_model_dir) as served:
        yield served


def engines(served: Served) -> list[str]:
    """Return the instance name of every engine of this deployment that runs on this machine."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        argv = process.info["cmdline"] or []
        with contextlib.suppress(psutil.Error):
            if "--instance" in argv and argv[1:3] == ["-m", "engine"] and str(served.home) in process.cwd():
                found.append(argv[argv.index("--instance") + 1])
    return sorted(found)


def kill(client: subprocess.Popen[str], who: str) -> None:
    """Kill -9 the client, its executor, or both at once."""
    children = psutil.Process(client.pid).children() if client.poll() is None else []
    executors = [child for child in children if "pdctl.recover.executor" in child.cmdline()]
    for process in executors if who in ("executor", "both") else []:
        process.kill()
    if who in ("client", "both"):
        client.send_signal(signal.SIGKILL)


@pytest.mark.timeout(120 * KILLS + 300)
def test_killed_at_random_it_ends_in_proven_service(served: Served) -> None:
    """Every time: the next call ends recovered, each engine exists once, the ledger has no open end."""
    print(f"PDCTL_CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    go = ("restart", "--yes", "--force", "--reason", "chaos")
    for number in range(KILLS):
        who, after_s = chance.choice(("client", "executor", "both")), chance.uniform(0.0, LONGEST_S)
        with served.start(*go) as client:
            timer = threading.Timer(after_s, kill, (client, who))
            timer.start()
            client.communicate(timeout=200)
            timer.cancel()
        done = served.json(*go)
        told = f"kill {number} of {who} after {after_s:.2f} s: {done['outcome']}: {done['detail']}"
        print(told)
        assert done["outcome"] == "recovered", told
        assert engines(served) == ["decode-0", "prefill-0"], told
        assert all(recovery["outcome"] for recovery in served.json("history")), told
