"""What honest health costs an idle pair, and whether it says "unwell" of a saturated one.

    python -m benchmarks.health [--rounds 3] [--window 60] [--minutes 10] [--model PATH]

Cost: processor time of both engines, all their processes, while nobody asks for tokens. Four ways alternate on the same
pair, each in processes of its own: no canary and no probe; canaries every 0.2 s; `/health/live` of both sides asked ten
times a second, which is the price of HTTP alone; and `/health` asked as often. What one canary and the honest part of
one probe cost is scaled to what is served: a canary every 10 s, a probe of each engine every second (the router that
`pdctl up` starts). Target: both together < 0.1 % of a core for an engine. It is said besides what an idle pair takes
in all.

False alarms: more requests than run at once, without a pause; `/health` and `/health/transfer` of both sides are asked
ten times a second. Target: no answer but 200.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks.command import run
from benchmarks.load import describe_machine, model_path
from tests.serving.rig import Pair, pair

CANARY_EVERY_S, PROBE_EVERY_S = 0.2, 0.1
SERVED_CANARY_EVERY_S, SERVED_PROBE_EVERY_S = 10.0, 1.0
SETTLES_S = 5.0
CLIENTS = 24
ANSWER_LIMIT_S = 600.0
PATHS = ("/health", "/health/transfer")


def processor_s(sides: Pair) -> float:
    """Return the processor seconds that both engines have taken, from the scheduler's nanoseconds of each thread."""
    found = 0
    for side in (sides.prefill, sides.decode):
        api = psutil.Process(side.pid)
        for process in (api, *api.children(recursive=True)):
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                found += int((thread / "schedstat").read_text().split()[0])
    return found / 1e9


class Probes:
    """Asks every path of both sides at a steady pace; counts the answers."""

    def __init__(self, sides: Pair, paths: tuple[str, ...]) -> None:
        self.answers: Counter[str] = Counter()
        """By status, with the body where it is not 200, or the name of what went wrong."""
        self._urls = [side.url + path for side in (sides.prefill, sides.decode) for path in paths]
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ask while the block runs."""
        with ThreadPoolExecutor(len(self._urls)) as pool:
            asking = [pool.submit(self._ask, url) for url in self._urls]
            try:
                yield
            finally:
                self._stopping.set()
                for each in asking:
                    each.result()

    def _ask(self, url: str) -> None:
        with httpx.Client(timeout=10, trust_env=False, verify=False) as client:
            while not self._stopping.wait(PROBE_EVERY_S):
                try:
                    answer = client.get(url)
                    why = "" if answer.status_code == 200 else f" {url}: {answer.text}"
                    self.answers[f"{answer.status_code}{why}"] += 1
                except httpx.HTTPError as error:
                    self.answers[type(error).__name__] += 1


@dataclass(frozen=True, slots=True)
class Idle:
    """What an idle pair took in a window."""

    processor_s: float
    probes: int


def idle(model: str, folder: Path, window_s: float, canary_every_s: float = 0, probed: str | None = None) -> Idle:
    """Measure a pair to which nobody sends a request."""
    with pair(model, folder, decode_flags=("--canary-every", f"{canary_every_s:g}")) as sides:
        time.sleep(SETTLES_S)
        probes = Probes(sides, () if probed is None else (probed,))
        with probes.running() if probed else nullcontext():
            before = processor_s(sides)
            time.sleep(window_s)
            return Idle(processor_s(sides) - before, probes.answers.total())


def tell_costs(model: str, folder: Path, rounds: int, window_s: float) -> None:
    """Alternate the four ways and print what each part costs."""
    shares, canaries, http, honest = [], [], [], []
    for _ in range(rounds):
        plain = idle(model, folder, window_s)
        busy = idle(model, folder, window_s, canary_every_s=CANARY_EVERY_S)
        live = idle(model, folder, window_s, probed="/health/live")
        health = idle(model, folder, window_s, probed="/health")
        shares.append(plain.processor_s / window_s)
        canaries.append((busy.processor_s - plain.processor_s) / (window_s / CANARY_EVERY_S))
        http.append((live.processor_s - plain.processor_s) / live.probes)
        honest.append((health.processor_s - plain.processor_s) / health.probes - http[-1])
    # Of a canary each side does a half, of its probes each does its own.
    canary = told("canary, both sides", canaries) / 2 / SERVED_CANARY_EVERY_S
    part = told("honest part of a probe of /health", honest) / SERVED_PROBE_EVERY_S
    told("HTTP part of a probe", http)
    print(f"an engine's honest health: {part:.3%} of a core, its canaries {canary:.3%}: together {part + canary:.3%}")
    print("  target < 0.1 %; all that an idle pair does: " + ", ".join(f"{share:.2%}" for share in shares))


def told(name: str, costs_s: list[float]) -> float:
    """Print and return the median."""
    spread = ", ".join(f"{1000 * value:.2f}" for value in costs_s)
    print(f"{name}: {1000 * statistics.median(costs_s):.2f} ms of processor time (rounds: {spread})")
    return statistics.median(costs_s)


def keep_asking(sides: Pair, seed: int, until_s: float, done: Counter[int]) -> None:
    """Send one request after the other, as a router would, and count how they ended in time."""
    chance = random.Random(seed)
    with httpx.Client(timeout=ANSWER_LIMIT_S, trust_env=False, verify=False) as client, ThreadPoolExecutor(1) as leg:
        while time.monotonic() < until_s:
            ids = [chance.randrange(3, 250) for _ in range(chance.randrange(16, 512))]
            sampling = {"max_new_tokens": chance.randrange(4, 64), "temperature": 0, "ignore_eos": True}
            body = sides.legs({"input_ids": ids, "sampling_params": sampling}, chance.getrandbits(62))
            prefill = leg.submit(client.post, sides.prefill.url + "/generate", json=body)
            try:
                done[client.post(sides.decode.url + "/generate", json=body).status_code] += 1
                prefill.result()
            except httpx.HTTPError:
                if time.monotonic() < until_s:
                    raise
                prefill.exception()  # The pair was ended under both legs.


def tell_alarms(model: str, folder: Path, minutes: float) -> None:
    """Saturate a pair and count what its health says."""
    done: Counter[int] = Counter()
    # The pair ends before the clients do: who still waits then waits no longer.
    with ThreadPoolExecutor(CLIENTS) as pool, pair(model, folder, "--max-running", str(CLIENTS // 3)) as sides:
        probes, until_s = Probes(sides, PATHS), time.monotonic() + 60 * minutes
        asking = [pool.submit(keep_asking, sides, seed, until_s, done) for seed in range(CLIENTS)]
        with probes.running():
            time.sleep(until_s - time.monotonic())
    for each in asking:
        each.result()
    false = probes.answers.total() - probes.answers["200"]
    print(f"saturated for {minutes:g} min by {CLIENTS} clients: requests by status {dict(done)}")
    print(f"health asked {probes.answers.total()} times: {dict(probes.answers)}; not 200: {false}  target 0")


def main() -> None:
    """Print costs, then false alarms."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=float, default=60.0, help="seconds of each idle measurement")
    parser.add_argument("--minutes", type=float, default=10.0, help="of saturation")
    parser.add_argument("--model", default=None)
    options = parser.parse_args()
    describe_machine()
    model, folder = options.model or model_path(), Path(tempfile.mkdtemp(prefix="health-"))
    if options.rounds:
        tell_costs(model, folder, options.rounds, options.window)
    if options.minutes:
        tell_alarms(model, folder, options.minutes)


if __name__ == "__main__":
    run(main)
