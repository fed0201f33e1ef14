"""How it is served: unified or a pair, either schedule, one rank or two, with and without the prefix cache."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from tests.mixes.requests import Request
from tests.serving.rig import Pair, Process, engine, pair, running

LIMIT_S = 300.0
Answer = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to serve."""

    is_pair: bool
    schedule: str
    ranks: int
    is_caching: bool

    @property
    def flags(self) -> tuple[str, ...]:
        cache = () if self.is_caching else ("--no-prefix-cache",)
        return ("--schedule", self.schedule, "--tp", str(self.ranks), *cache)

    def __str__(self) -> str:
        parts = ("pair" if self.is_pair else "unified", self.schedule, f"TP{self.ranks}")
        return " ".join((*parts, "cache" if self.is_caching else "no cache"))


PLAIN = Way(is_pair=False, schedule="normal", ranks=1, is_caching=False)
"""What all others are compared with."""
WAYS = tuple(Way(*parts) for parts in product((False, True), ("normal", "overlap"), (1, 2), (False, True)))


@contextlib.contextmanager
def served(way: Way, model: Path, folder: Path, *flags: str) -> Iterator[Process | Pair]:
    """Serve `model` that way."""
    if way.is_pair:
        with pair(model, folder, *flags, *way.flags) as sides:
            yield sides
        return
    with running(process := engine("unified", model, folder, *flags, *way.flags)):
        yield process


def answers(server: Process | Pair, mix: list[Request]) -> list[Answer]:
    """Send a whole mix at once; return what each request got."""
    with httpx.Client(timeout=LIMIT_S, verify=False) as client, ThreadPoolExecutor(2 * len(mix)) as pool:

        def ask(request: Request) -> Answer:
            if isinstance(server, Process):
                return _answer(client, server.url, request, request.body)
            body = server.legs(request.body)
            leg = pool.submit(client.post, server.prefill.url + request.path, json=body)
            answer = _answer(client, server.decode.url, request, body)
            leg.result()
            return answer

        return list(ThreadPoolExecutor(len(mix)).map(ask, mix))


def _answer(client: httpx.Client, url: str, request: Request, body: dict[str, Any]) -> Answer:
    if request.leaves_after is not None:
        return _first_tokens(client, url + request.path, body, request.leaves_after)
    answer = client.post(url + request.path, json=body)
    if answer.status_code != 200:
        return ("refused", answer.status_code, answer.text)
    said = answer.json()
    if "choices" in said:
        choice = said["choices"][0]
        calls = [call["function"] for call in choice["message"].get("tool_calls") or ()]
        return (choice["finish_reason"], json.dumps(calls), choice["message"]["content"])
    return (said["meta_info"]["finish_reason"]["type"], *said["output_ids"])


def _first_tokens(client: httpx.Client, url: str, body: dict[str, Any], count: int) -> Answer:
    """Stream until `count` tokens are there, then hang up."""
    seen: list[int] = []
    with client.stream("POST", url, json=body | {"stream": True}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                seen = json.loads(line[6:])["output_ids"]
            if len(seen) >= count:
                break
    return ("left", *seen[:count])
