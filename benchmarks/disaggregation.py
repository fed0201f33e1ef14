"""Tokens per second of a prefill/decode pair against two unified engines behind the same kind of router.

    python -m benchmarks.disaggregation [--concurrency 16] [--requests 64] [--rounds 3]      # 25 minutes

All four engines and both routers run at once, one thread an engine; only the two that are asked have work, so both
ways have two threads. Rounds alternate, and swap who is first. For each mix of prompt and output tokens the unified
engines also tell how long prefill and decode take a request: a pair is as good as two when both take the same, and
waits for the slower side by as much as they differ. So the concurrency counts: a fuller batch makes decode cheaper a
request. Rates are of the middle of a round, when neither way is filling up or running empty. Target: ratio >= 0.95 on
the mix where the times are closest (the engine issue's figures).
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path
from benchmarks.ttft import first_token_s
from pdctl.deployment.model import Instance, Role
from tests.serving.rig import engine, pair, router, running

MIXES = ((128, 256), (512, 192), (1024, 32))
WAYS = ("pair", "two unified")
FLAGS = ("--no-prefix-cache",)


@dataclass
class Mix:
    """One kind of request and what was measured with it."""

    prompt_tokens: int
    output_tokens: int
    prefill_s: float = 0.0
    """Of one request alone, by the time to its first token."""
    decode_s: float = 0.0
    """Of one request's share of a full batch."""
    rates: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})

    @property
    def balance(self) -> float:
        """Return decode time over prefill time; 1 keeps both engines of a pair busy."""
        return self.decode_s / self.prefill_s

    @property
    def ratio(self) -> float:
        """Return the median of pair over two unified, round by round."""
        median: float = statistics.median(one / two for one, two in zip(*self.rates.values(), strict=True))
        return median

    def prompts(self, chance: random.Random, count: int) -> list[list[int]]:
        return [[chance.randrange(100, 40000) for _ in range(self.prompt_tokens)] for _ in range(count)]

    def body(self, ids: list[int]) -> dict[str, object]:
        sampling = {"max_new_tokens": self.output_tokens, "temperature": 0, "ignore_eos": True}
        return {"input_ids": ids, "sampling_params": sampling}


def answered_s(client: httpx.Client, url: str, mix: Mix, prompts: list[list[int]], concurrency: int) -> list[float]:
    """Return when each prompt was answered, in rising order, in seconds since the first were sent, so many at once."""

    def ask(ids: list[int]) -> float:
        client.post(url + "/generate", json=mix.body(ids)).raise_for_status()
        return time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        return sorted(pool.map(ask, prompts))


def middle_rate(answered: list[float], concurrency: int) -> float:
    """Return requests per second from the first round of answers to the last request that was sent."""
    middle = answered[concurrency - 1 : len(answered) - concurrency]
    return (len(middle) - 1) / (middle[-1] - middle[0])


def learn(client: httpx.Client, url: str, mix: Mix, chance: random.Random, concurrency: int) -> None:
    """Measure prefill and decode of a mix on one unified engine."""
    alone = mix.body(mix.prompts(chance, 1)[0])
    first_token_s(client, url, {**alone, "stream": True})
    mix.prefill_s = first_token_s(client, url, {**mix.body(mix.prompts(chance, 1)[0]), "stream": True})
    whole_s = answered_s(client, url, mix, mix.prompts(chance, concurrency), concurrency)[-1]
    mix.decode_s = whole_s / concurrency - mix.prefill_s


def play(
    client: httpx.Client, urls: dict[str, str], mix: Mix, chance: random.Random, given: argparse.Namespace
) -> None:
    """Run the rounds of one mix."""
    for turn in range(given.rounds):
        prompts = mix.prompts(chance, given.requests)
        for way in WAYS if turn % 2 else WAYS[::-1]:
            answered = answered_s(client, urls[way], mix, prompts, given.concurrency)
            mix.rates[way].append(mix.output_tokens * middle_rate(answered, given.concurrency))


def main() -> None:
    """Print a table and the ratio that counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.requests < 3 * given.concurrency:
        parser.error(f"--requests {given.requests}: at least three times --concurrency, of which the middle counts")
    describe_machine()
    chance, model, folder = random.Random(1), model_path(), Path(tempfile.mkdtemp(prefix="disaggregation-"))
    both = [engine("unified", model, folder, *FLAGS) for _ in range(2)]
    unified = tuple(
        Instance(name=f"unified-{number}", role=Role.UNIFIED, dialect="pdctl", url=one.url)
        for number, one in enumerate(both)
    )
    mixes = [Mix(*sizes) for sizes in MIXES]
    with (
        running(*both),
        pair(model, folder, *FLAGS) as sides,
        router(sides, folder) as before_pair,
        router(unified, folder) as before_two,
        httpx.Client(timeout=600, trust_env=False) as client,
    ):
        urls = {"pair": before_pair.url, "two unified": before_two.url}
        print(
            f"{'prompt/output':>14} {'prefill s':>10} {'decode s':>9} {'pair tok/s':>11} {'two tok/s':>10} {'ratio':>6}"
        )
        for mix in mixes:
            learn(client, both[0].url, mix, chance, given.concurrency)
            play(client, urls, mix, chance, given)
            pair_rate, two_rate = (statistics.median(mix.rates[way]) for way in WAYS)
            name = f"{mix.prompt_tokens}/{mix.output_tokens}"
            times = f"{mix.prefill_s:10.2f} {mix.decode_s:9.2f}"
            print(f"{name:>14} {times} {pair_rate:11.1f} {two_rate:10.1f} {mix.ratio:6.3f}", flush=True)
    closest = min(mixes, key=lambda mix: max(mix.balance, 1 / mix.balance) if mix.balance > 0 else float("inf"))
    print(
        f"closest prefill and decode times: {closest.prompt_tokens}/{closest.output_tokens} "
        f"(decode / prefill {closest.balance:.2f}): ratio {closest.ratio:.3f}  target >= 0.95"
    )


if __name__ == "__main__":
    run(main)
