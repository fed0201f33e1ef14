"""Kill -9 client, executor or both at a random moment of a restart of real engines; the next call proves service.

Prints its seed; `PDCTL_CHAOS_SEED` replays it. `PDCTL_CHAOS_KILLS=100` is the long form, `40-60` a piece of it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.pieces import chance_of, piece
from tests.serving.served import Served, served_by_pdctl

pytestmark = pytest.mark.slow
KILLS = piece("PDCTL_CHAOS_KILLS", 2)
SEED = int(os.environ.get("PDCTL_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
TARGETS: tuple[tuple[str, ...], ...] = ((), ("prefill-0",), ("decode-0",))
"""What is restarted; nothing named is both."""
GO = ("--yes", "--force", "--reason", "chaos")


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """1 prefill, 1 decode and a router."""
    with served_by_pdctl(tmp_path_factory.mktemp("chaos"), tiny_model_dir) as served:
        yield served


@pytest.fixture(scope="module")
def whole_s(served: Served) -> float:
    """Seconds of a whole restart with its proof: no kill comes later."""
    began = time.monotonic()
    assert served.json("restart", *GO)["outcome"] == "recovered"
    return time.monotonic() - began


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
    for child in children if who in ("executor", "both") else []:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may just have ended
            if "pdctl.recover.executor" in child.cmdline():
                child.kill()
    if who in ("client", "both"):
        client.send_signal(signal.SIGKILL)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", KILLS)
def test_killed_at_random_it_ends_in_proven_service(served: Served, whole_s: float, number: int) -> None:
    """Client or next call end recovered, each engine exists once, the ledger has no open end."""
    chance = chance_of(SEED, number)
    targets, who = chance.choice(TARGETS), chance.choice(("client", "executor", "both"))
    after_s = chance.uniform(0.0, whole_s)
    with served.start("restart", *targets, *GO) as client:
        timer = threading.Timer(after_s, kill, (client, who))
        timer.start()
        client.communicate(timeout=200)
        timer.cancel()
    if client.returncode != 0:
        # Nobody who sees it fail would leave it at that.
        served.json("restart", *targets, *GO)
    history = served.json("history")
    told = f"seed {SEED}, kill {number} of {who} after {after_s:.2f} s of {targets}: {history[-1]['outcome']}"
    print(told)
    assert history[-1]["outcome"] == "recovered", told
    assert engines(served) == ["decode-0", "prefill-0"], told
    assert all(recovery["outcome"] for recovery in history), told
