"""Requests whose right answers are known, sent by several clients until told to stop."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from tests.serving.rig import Pair, Process

DEADLINE_S = 40.0
"""Longer than every clock of the engine: a request that is still there is wedged."""


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt and its only right answer."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    def body(self) -> dict[str, Any]:
        sampling = {"max_new_tokens": len(self.answer), "temperature": 0, "ignore_eos": True}
        return {"input_ids": list(self.prompt), "sampling_params": sampling}


def make_cases(alone: Process, seed: int, count: int = 12, longest: int = 700) -> list[Case]:
    """Ask an engine without a split, one by one."""
    chance = random.Random(seed)
    cases = []
    for _ in range(count):
        prompt = tuple(chance.randrange(3, 250) for _ in range(chance.randint(5, longest)))
        wanted = Case(prompt, (0,) * chance.randint(4, 40))
        answer = alone.post("/generate", wanted.body())
        assert answer.status_code == 200, answer.text
        cases.append(Case(prompt, tuple(answer.json()["output_ids"])))
    return cases


@dataclass
class Tally:
    """What became of the requests."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """right | wrong | wedged | left | the code of a failure"""
    right_at: list[float] = field(default_factory=list)
    """Monotonic times."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, outcome: str) -> None:
        with self.lock:
            self.outcomes[outcome] += 1
            if outcome == "right":
                self.right_at.append(time.monotonic())

    @property
    def longest_outage_s(self) -> float:
        """Longest time without a right answer."""
        times = sorted(self.right_at)
        return max((later - sooner for sooner, later in pairwise(times)), default=0.0)


class Client:
    """Posts both legs of a request as a router would, over connections of its own."""

    def __init__(self, sides: Pair, chance: random.Random) -> None:
        self._sides = sides
        self._chance = chance
        self._http = httpx.Client(timeout=DEADLINE_S, verify=False)
        self._pool = ThreadPoolExecutor(1)

    def ask(self, case: Case, leaves_after_s: float | None = None) -> str:
        """Return the outcome of one request; its client leaves after that time, if given."""
        body = self._sides.legs(case.body(), room=self._chance.getrandbits(62))
        timeout = leaves_after_s or DEADLINE_S
        prefill = self._pool.submit(self._leg, self._sides.prefill, body, timeout)
        decode = self._leg(self._sides.decode, body, timeout)
        prefill.result()
        if isinstance(decode, str):
            return "left" if decode == "wedged" and leaves_after_s else decode
        return "right" if tuple(decode["output_ids"]) == case.answer else "wrong"

    def _leg(self, side: Process, body: dict[str, Any], timeout_s: float) -> dict[str, Any] | str:
        try:
            answer = self._http.post(side.url + "/generate", json=body, timeout=timeout_s)
        except httpx.TimeoutException:
            return "wedged"
        except httpx.TransportError:
            return "unreachable"
        if answer.status_code == 200:
            return dict(answer.json())
        return str(answer.json()["error"]["code"])

    def close(self) -> None:
        self._pool.shutdown()
        self._http.close()


class Load:
    """Clients that ask one request after the other while the block runs."""

    def __init__(self, sides: Pair, cases: list[Case], seed: int, clients: int = 3) -> None:
        self.tally = Tally()
        self._sides = sides
        self._cases = cases
        self._seeds = [seed * 1000 + number for number in range(clients)]
        self._stopping = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Any:
        """Run the clients; raises what any of them raised."""
        with ThreadPoolExecutor(len(self._seeds)) as pool:
            done = [pool.submit(self._run, random.Random(seed)) for seed in self._seeds]
            try:
                yield self
            finally:
                self._stopping.set()
                for each in done:
                    each.result()

    def _run(self, chance: random.Random) -> None:
        client = Client(self._sides, chance)
        while not self._stopping.is_set():
            outcome = client.ask(chance.choice(self._cases))
            self.tally.add(outcome)
            if outcome not in ("right", "wrong"):
                # As a client behind a router would: not at once again.
                self._stopping.wait(0.1)
        client.close()
