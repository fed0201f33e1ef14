"""The long form: `python -m tests.mixes [--mixes 200] [--model smollm2] [--seed N] [--ways WORDS]`.

Every mix is served in the plain way first (unified, normal, one rank, no cache), then in each of the others; prints a
line a way. A difference is printed with the seed of its mix, and the exit code is 1. The tiny model runs in float64,
SmolLM2 in float32, where answers that part at a near-tie (`near_ties.py`) are counted apart and are no error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.conftest import smollm2_candidate
from tests.mixes.near_ties import Referee
from tests.mixes.requests import Request, make_mix
from tests.mixes.ways import PLAIN, WAYS, Answer, Way, answers, served
from tests.tiny_model import write_tiny_model


def answers_of(
    way: Way, model: Path, mixes: dict[int, list[Request]], flags: tuple[str, ...]
) -> dict[int, list[Answer]]:
    """Serve all mixes in one way, one after the other."""
    with tempfile.TemporaryDirectory(prefix="mixes-") as folder, served(way, model, Path(folder), *flags) as server:
        return {seed: answers(server, mix) for seed, mix in mixes.items()}


def compare(
    mixes: dict[int, list[Request]],
    expected: dict[int, list[Answer]],
    found: dict[int, list[Answer]],
    referee: Referee | None,
) -> tuple[int, int]:
    """Print the requests that got something else; return how many, and how many more parted at a near-tie."""
    wrong = ties = 0
    for seed, mix in mixes.items():
        for number, (request, one, other) in enumerate(zip(mix, expected[seed], found[seed], strict=True)):
            if one == other:
                continue
            is_tie = referee is not None and referee.is_near_tie(request, one, other)
            ties += is_tie
            wrong += not is_tie
            print(f"  {'near-tie' if is_tie else 'DIFFERENT'}: seed {seed} request {number}: {other} instead of {one}")
    return wrong, ties


def main() -> int:
    """Run what the flags ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first mix; the others count on")
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--ways", default="", help="only the ways whose name has these words")
    options = parser.parse_args()
    mixes = {seed: make_mix(seed) for seed in range(options.seed, options.seed + options.mixes)}
    ways = [way for way in WAYS if way != PLAIN and all(word in str(way).split() for word in options.ways.split())]
    with tempfile.TemporaryDirectory(prefix="tiny-") as folder:
        is_tiny = options.model == "tiny"
        model = write_tiny_model(Path(folder) / "model") if is_tiny else smollm2_candidate()
        flags = ("--dtype", "float64" if is_tiny else "float32", "--chunk-tokens", "64")
        referee = None if is_tiny else Referee(model)
        expected = answers_of(PLAIN, model, mixes, flags)
        wrong = 0
        for way in ways:
            started = time.monotonic()
            wrong_here, ties = compare(mixes, expected, answers_of(way, model, mixes, flags), referee)
            requests = sum(map(len, mixes.values()))
            print(f"{way!s:32} {len(mixes)} mixes, {requests} requests, {wrong_here} different, {ties} near-ties, "
                  f"{time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
            wrong += wrong_here
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
