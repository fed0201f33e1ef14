"""`--recheck-prompts` on a decode of two ranks: each sums its own part of the pages, and is counted by itself."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serving.rig import Pair, pair, until
from tests.serving.test_ranks import FLAGS

pytestmark = pytest.mark.slow
BODY = {"model": "test", "prompt": list(range(3, 103)), "temperature": 0, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def sides(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    flags = (*FLAGS, "--tp", "2", "--no-prefix-cache")
    folder = tmp_path_factory.mktemp("sides")
    with pair(tiny_model_dir, folder, *flags, decode_flags=("--recheck-prompts",)) as both:
        yield both


def counts(sides: Pair, name: str) -> list[int]:
    """Return a counter of decode by rank."""
    lines = httpx.get(sides.decode.url + "/metrics", timeout=10).text.splitlines()
    found = [line for line in lines if line.startswith(f'pdengine_prompts_{name}_total{{rank="')]
    return [int(float(line.rsplit(" ", 1)[1])) for line in sorted(found)]


def damage(pid: int) -> None:
    """Change a bit of every value that a rank's pool holds, through the file that its memory is."""
    files = Path(f"/proc/{pid}/fd")
    pool = next(file for file in files.iterdir() if str(file.readlink()).startswith("/memfd:kv-pool"))
    with pool.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        values = np.frombuffer(memory, dtype=np.uint8)
        values[values != 0] ^= 1
        del values


def ask(sides: Pair, tokens: int, damaged_pid: int | None = None) -> None:
    """Have a request answered; after its first token, when all its pages have landed, damage a rank of decode."""
    body: dict[str, Any] = sides.legs({**BODY, "max_tokens": tokens})
    with ThreadPoolExecutor(1) as pool:
        prefill = pool.submit(sides.prefill.post, "/v1/completions", body)
        with httpx.stream("POST", sides.decode.url + "/v1/completions", json=body, timeout=60) as answer:
            assert answer.status_code == 200
            pieces = answer.iter_raw()
            next(pieces)
            if damaged_pid is not None:
                damage(damaged_pid)
            for _ in pieces:
                pass
        assert prefill.result().status_code == 200
    until(sides.is_idle, 10, "all pages back")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_page_that_changes_on_one_rank_is_counted_there(sides: Pair, rank: int) -> None:
    """A request whose pages stay as they are is counted by both ranks as rechecked; then one of them loses bits."""
    ask(sides, tokens=4)
    rechecked, changed = counts(sides, "rechecked"), counts(sides, "changed")
    assert rechecked[0] == rechecked[1] > 0

    def is_counted() -> bool:
        ask(sides, 150, sides.decode.get("/server_info")["rank_pids"][rank])
        return counts(sides, "changed")[rank] > changed[rank]

    # In a crowd the damage may come before the first sums, or after the last token.
    until(is_counted, 60, "the damage between the two sums of a request")
    again = counts(sides, "rechecked")
    assert again[0] == again[1] > rechecked[0]
    assert counts(sides, "changed")[1 - rank] == changed[1 - rank]
