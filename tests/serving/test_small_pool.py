"""A pool of 1.2 of the longest request and sixteen at once: all complete, with the tokens of a solo run."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.rig import Process, engine, pair, running, until

LONGEST = 320
"""Tokens of prompt and answer."""
POOL = LONGEST * 12 // 10 // 16 * 16


def requests() -> list[dict[str, Any]]:
    """Return sixteen requests: one of the longest, the others of 1 to 240 prompt and 20 to 80 answer tokens."""
    chance = random.Random(16)
    lengths = [(240, 80)] + [(chance.randint(1, 240), chance.randint(20, 80)) for _ in range(15)]
    return [
        {
            "input_ids": [chance.randrange(3, 250) for _ in range(tokens)],
            "sampling_params": {"max_new_tokens": answer, "temperature": at % 2, "seed": at, "ignore_eos": True},
        }
        for at, (tokens, answer) in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def alone(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What an engine with a large pool and without a prefix cache says to each, one by one."""
    folder = tmp_path_factory.mktemp("alone")
    process = engine("unified", tiny_model_dir, folder, "--dtype", "float64", "--no-prefix-cache")
    with running(process):
        return [process.post("/generate", request).json()["output_ids"] for request in requests()]


def retractions(side: Process) -> float:
    """Return how many sequences had to begin again."""
    text = httpx.get(side.url + "/metrics", timeout=10).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("pdengine_retractions_total "))


@pytest.mark.parametrize("cache", [(), ("--no-prefix-cache",)])
def test_unified(tiny_model_dir: Path, tmp_path: Path, alone: list[list[int]], cache: tuple[str, ...]) -> None:
    """Sixteen at once on one engine; some are retracted."""
    process = engine("unified", tiny_model_dir, tmp_path, "--dtype", "float64", "--kv-tokens", str(POOL), *cache)
    with running(process), ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda request: process.post("/generate", request), requests()))
        assert [answer.json().get("output_ids", answer.text) for answer in answers] == alone
        assert retractions(process) > 0


@pytest.mark.parametrize("cache", [(), ("--no-prefix-cache",)])
def test_pair(tiny_model_dir: Path, tmp_path: Path, alone: list[list[int]], cache: tuple[str, ...]) -> None:
    """Sixteen at once over a pair with such pools; how many are retracted hangs on how fast they come."""
    flags = ("--dtype", "float64", "--kv-tokens", str(POOL), *cache)
    with pair(tiny_model_dir, tmp_path, *flags) as sides, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda request: sides.post("/generate", request)[1], requests()))
        assert [answer.json().get("output_ids", answer.text) for answer in answers] == alone
        until(sides.is_idle, 5, "no room and no page in use on either side")
