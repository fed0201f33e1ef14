"""Tokens per second of `--schedule overlap` against `normal`: the same engine, the same requests.

    python -m benchmarks.schedules [--concurrency 8] [--tokens 48] [--starts 4] [--rounds 6] [--tp 1]

Both engines run at once with one thread a rank; only the one that is asked has work. Rounds alternate, and swap who is
first. Both are started anew several times: where a process's memory happens to lie is worth up to 3 % for all its life
(two engines of the same schedule, three starts: 0.995, 1.001, 1.025). Target on a CPU: median ratio >= 0.98 (DESIGN
section 8); there is no second core for the loop to gain by. On a machine that others keep busy look at the processor
seconds: they tell what the schedule costs, but not what waits.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path
from tests.serving.rig import engine, running

SCHEDULES = ("normal", "overlap")

Values = dict[str, list[float]]
"""Of each schedule, one a round."""


def processor_s(url: str) -> float:
    """Return the processor seconds that an engine's ranks have taken."""
    pids = httpx.get(url + "/server_info").json()["rank_pids"]
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def tokens_per_s(client: httpx.Client, url: str, prompts: list[list[int]], tokens: int) -> float:
    """Return generated tokens per second of all prompts at once."""

    def ask(ids: list[int]) -> None:
        sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        client.post(url + "/generate", json={"input_ids": ids, "sampling_params": sampling}).raise_for_status()

    started = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        list(pool.map(ask, prompts))
    return len(prompts) * tokens / (time.perf_counter() - started)


def play(options: argparse.Namespace, chance: random.Random, rates: Values, costs: Values) -> None:
    """Start both engines, and add what each round of them gave."""
    model, folder = model_path(), Path(tempfile.mkdtemp(prefix="schedules-"))
    flags = ("--tp", str(options.tp), "--no-prefix-cache")
    engines = {name: engine("unified", model, folder, "--schedule", name, *flags) for name in SCHEDULES}
    with running(*engines.values()), httpx.Client(timeout=300, trust_env=False) as client:
        for turn in range(options.rounds + 1):
            prompts = [
                [chance.randrange(100, 40000) for _ in range(options.prompt_tokens)] for _ in range(options.concurrency)
            ]
            for name in SCHEDULES if turn % 2 else SCHEDULES[::-1]:
                url = engines[name].url
                before = processor_s(url)
                rate = tokens_per_s(client, url, prompts, options.tokens)
                if turn:  # the first one warms up
                    rates[name].append(rate)
                    costs[name].append((processor_s(url) - before) / (options.concurrency * options.tokens))


def main() -> None:
    """Print both medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6, help="of each start")
    parser.add_argument("--tp", type=int, default=1)
    options = parser.parse_args()
    describe_machine()
    chance = random.Random(1)
    rates: Values = {name: [] for name in SCHEDULES}
    costs: Values = {name: [] for name in SCHEDULES}
    for _ in range(options.starts):
        play(options, chance, rates, costs)
    for name in SCHEDULES:
        speed, cost = statistics.median(rates[name]), statistics.median(costs[name]) * 1000
        print(f"{name:8} median {speed:7.1f} tokens/s  max {max(rates[name]):7.1f}  {cost:6.2f} processor ms a token")
    print(f"overlap / normal: tokens/s {_ratio(rates)}  target >= 0.98")
    print(f"overlap / normal: processor time {_ratio(costs)}")


def _ratio(values: Values) -> str:
    ratios = sorted(one / other for one, other in zip(values["overlap"], values["normal"], strict=True))
    return f"median {statistics.median(ratios):.3f} (min {ratios[0]:.3f}, max {ratios[-1]:.3f})"


if __name__ == "__main__":
    run(main)
