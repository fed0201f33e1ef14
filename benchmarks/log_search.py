"""Take a log of a million lines, against the plain tools on the same file with the same words.

    python -m benchmarks.log_search [--lines 1000000] [--rounds 5]

Plain: `tail -c 4194304 LOG` and `grep -a -F -e WORD... LOG` (LC_ALL=C), one after the other. Ours: what `pdctl` does,
with its cleaning of credentials and its two files. Alternated. Target (DESIGN section 8): median ratio <= 1.2, memory
flat: a log ten times as long costs no more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.command import run
from benchmarks.load import describe_machine
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.logs import TAIL_BYTES, take_files
from pdctl.collect.markers import MARKERS

LIMIT = 1.2
HITS = 50


def write_log(path: Path, lines: int) -> None:
    """Write lines as SGLang prints them, with a few that matter."""
    pick = random.Random(7)
    hits = set(pick.sample(range(lines), min(HITS, lines)))
    with path.open("w", encoding="utf-8") as file:
        for number in range(lines):
            clock = f"2026-06-19 {number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
            if number in hits:
                file.write(
                    f"[{clock} TP0] Prefill transfer failed for request rank=0 room={number}: NIXL_ERR_BACKEND\n"
                )
            else:
                file.write(
                    f"[{clock} TP{number % 8}] Decode batch. #running-req: {number % 90}, #token: {number * 7 % 9999}, "
                    f"token usage: 0.{number % 97:02d}, gen throughput (token/s): {number % 3000}.25, #queue: 0\n"
                )


def plain(path: Path) -> float:
    """Return the seconds that the plain tools take."""
    words = [word for marker in MARKERS for word in ("-e", marker)]
    started = time.perf_counter()
    env = {**os.environ, "LC_ALL": "C"}
    subprocess.run(["tail", "-c", str(TAIL_BYTES), str(path)], stdout=subprocess.PIPE, check=True)
    subprocess.run(["grep", "-a", "-F", *words, str(path)], stdout=subprocess.PIPE, check=True, env=env)
    return time.perf_counter() - started


def ours(path: Path) -> float:
    """Return the seconds that the collector takes."""

    async def once() -> None:
        fetcher = Fetcher()
        taken = await take_files([path], Context(fetcher=fetcher, deadline=Deadline(60)))
        assert all(item.content and item.error is None for item in taken)

    started = time.perf_counter()
    asyncio.run(once())
    return time.perf_counter() - started


def peak_mb() -> float:
    """Return the most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Print the ratio; 1 when it misses the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    describe_machine()
    with tempfile.TemporaryDirectory() as folder:
        path, short = Path(folder) / "engine.log", Path(folder) / "short.log"
        write_log(short, given.lines // 10)
        ours(short)
        peak_of_short_mb = peak_mb()
        write_log(path, given.lines)
        size_mb = path.stat().st_size / 1e6
        pairs = [(plain(path), ours(path)) for _ in range(given.rounds + 1)][1:]
        grown_mb = peak_mb() - peak_of_short_mb
    ratio = statistics.median(mine / theirs for theirs, mine in pairs)
    print(f"{given.lines} lines, {size_mb:.0f} MB, {len(MARKERS)} words")
    print(
        f"tail + grep {statistics.median(theirs for theirs, _ in pairs):.2f} s, ours "
        f"{statistics.median(mine for _, mine in pairs):.2f} s, median ratio {ratio:.2f} (target <= {LIMIT:g})"
    )
    print(f"memory {peak_of_short_mb:.0f} MB with a tenth of the lines, {grown_mb:+.0f} MB with all")
    return 0 if ratio <= LIMIT and grown_mb <= 10 else 1


if __name__ == "__main__":
    run(main)
