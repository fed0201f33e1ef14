"""What is asked: lengths, sampling with seeds, clients that leave, forced tool calls; drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

WORDS = ("the", "hello", "world", "of", "pages", "and", "rooms")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {
                "type": "object",
                "properties": {"kind": {"enum": ["room", "page"]}, "count": {"enum": [1, 2, 3]}},
                "required": ["kind", "count"],
                "additionalProperties": False,
            },
        },
    }
]


@dataclass(frozen=True, slots=True)
class Request:
    """A body for `path`; its client leaves once it has `leaves_after` tokens, if given."""

    path: str
    body: dict[str, Any]
    leaves_after: int | None = None


def make_mix(seed: int, longest: int = 500) -> list[Request]:
    """Return 6 to 12 requests that are sent together; some share a prefix."""
    chance = random.Random(seed)
    common = [chance.randrange(3, 250) for _ in range(longest // 2)]
    return [_request(chance, common, longest) for _ in range(chance.randint(6, 12))]


def _request(chance: random.Random, common: list[int], longest: int) -> Request:
    kind = chance.choices(("greedy", "sampled", "leaves", "tools"), (4, 4, 2, 1))[0]
    if kind == "tools":
        return _tool_request(chance)
    own = [chance.randrange(3, 250) for _ in range(chance.randint(1, longest // 2))]
    prompt = common[: chance.choice((0, 0, len(common) // 3, len(common)))] + own
    sampling: dict[str, Any] = {"max_new_tokens": chance.randint(1, 40), "temperature": 0}
    if kind == "sampled":
        sampling |= {
            "temperature": chance.choice((0.5, 1.0, 1.5)),
            "top_p": chance.choice((0.8, 1.0)),
            "top_k": chance.choice((-1, 40)),
            "min_p": chance.choice((0.0, 0.05)),
            "repetition_penalty": chance.choice((1.0, 1.2)),
            "sampling_seed": chance.randrange(1 << 30),
        }
    sampling["ignore_eos"] = chance.random() < 0.7
    leaves_after = chance.randint(1, 20) if kind == "leaves" else None
    if leaves_after:
        sampling |= {"max_new_tokens": 400, "ignore_eos": True}
    return Request("/generate", {"input_ids": prompt, "sampling_params": sampling}, leaves_after)


def _tool_request(chance: random.Random) -> Request:
    words = " ".join(chance.choices(WORDS, k=chance.randint(1, 60)))
    body = {
        "model": "test", "messages": [{"role": "user", "content": words}], "tools": TOOLS, "tool_choice": "required",
        "max_tokens": 60, "temperature": chance.choice((0, 1.0)), "seed": chance.randrange(1 << 30),
    }  # fmt: skip
    return Request("/v1/chat/completions", body)
