"""Time to first token: a prefill/decode pair against the same engine unified.

    python -m benchmarks.ttft [--prompt-tokens 512] [--rounds 15]

All three engines run at once with one thread each; only the one that is asked has work. Requests alternate. Target:
median ratio <= 1.15 (DESIGN section 8).
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path

import httpx

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path
from tests.serving.rig import engine, pair, running


def first_token_s(client: httpx.Client, url: str, body: dict[str, object]) -> float:
    """Return seconds from the request to the first byte of the answer's body."""
    started = time.perf_counter()
    with client.stream("POST", url + "/generate", json=body) as answer:
        answer.raise_for_status()
        pieces = answer.iter_raw()
        next(pieces)
        took = time.perf_counter() - started
        for _ in pieces:
            pass
    return took


def main() -> None:
    """Print both medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    describe_machine()
    chance = random.Random(1)
    model = model_path()
    folder = Path(tempfile.mkdtemp(prefix="ttft-"))
    alone = engine("unified", model, folder)
    times: dict[str, list[float]] = {"unified": [], "pair": []}
    with running(alone), pair(model, folder) as both, httpx.Client(timeout=120, trust_env=False) as client:
        for turn in range(options.rounds + 2):
            ids = [chance.randrange(100, 40000) for _ in range(options.prompt_tokens)]
            body: dict[str, object] = {
                "input_ids": ids,
                "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True},
                "stream": True,
            }
            took = {"unified": first_token_s(client, alone.url, body)}
            legs = both.legs(body)
            prefill = threading.Thread(target=lambda legs=legs: client.post(both.prefill.url + "/generate", json=legs))
            prefill.start()
            took["pair"] = first_token_s(client, both.decode.url, legs)
            prefill.join()
            if turn >= 2:
                for name, value in took.items():
                    times[name].append(value)
    ratios = sorted(p / u for p, u in zip(times["pair"], times["unified"], strict=True))
    for name, values in times.items():
        print(f"{name:8} median {statistics.median(values) * 1000:7.1f} ms  min {min(values) * 1000:7.1f} ms")
    spread = f"min {ratios[0]:.3f}, max {ratios[-1]:.3f}"
    print(f"pair / unified: median {statistics.median(ratios):.3f} ({spread})  target <= 1.15")


if __name__ == "__main__":
    run(main)
