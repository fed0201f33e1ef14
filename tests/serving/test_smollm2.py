"""The real model over a real pair."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.serving.rig import Pair, engine, pair, running, until

SUBJECTS = ("the sea", "a small robot", "the number seven", "bread", "winter up north", "a lost key", "jazz", "rain")
OPENINGS = ("The best thing about {}", "Yesterday we spoke of {}", "My grandmother feared {}", "A short song on {}")
PLACES = (" in Norway is", " and the old town, where")
TOKENS = 8


def bodies() -> list[dict[str, object]]:
    """Return 64 completion requests, all different."""
    return [
        {
            "model": "test",
            "prompt": opening.format(subject) + place,
            "max_tokens": TOKENS,
            "temperature": 0,
        }
        for opening in OPENINGS
        for subject in SUBJECTS
        for place in PLACES
    ]


def streamed(sides: Pair, body: dict[str, object]) -> str:
    """Return the text of a streamed answer, posting both legs."""
    legs = sides.legs({**body, "stream": True})
    with httpx.Client(timeout=240) as client, ThreadPoolExecutor(1) as pool:
        prefill = pool.submit(client.post, sides.prefill.url + "/v1/completions", json=legs)
        text, done = "", False
        with client.stream("POST", sides.decode.url + "/v1/completions", json=legs) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                data = line.removeprefix("data: ")
                done = done or data == "[DONE]"
                if line.startswith("data: {"):
                    text += "".join(choice["text"] for choice in json.loads(data)["choices"])
        assert prefill.result().status_code == 200
        assert done
    return text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_64_streams_say_what_each_says_alone(smollm2_path: Path, tmp_path: Path) -> None:
    """float32: 64 concurrent streams over the pair give the text of 64 solo runs on a unified engine."""
    asked = bodies()
    flags = ("--dtype", "float32")
    alone = engine("unified", smollm2_path, tmp_path, *flags)
    with running(alone):
        answers = [alone.post("/v1/completions", body).json() for body in asked]
    solo = [answer["choices"][0]["text"] for answer in answers]
    with pair(smollm2_path, tmp_path, *flags) as sides, ThreadPoolExecutor(64) as pool:
        together = list(pool.map(lambda body: streamed(sides, body), asked))
        until(sides.is_idle, 5, "both ledgers free")
    assert together == solo
    assert len(set(solo)) > 32
