"""What an agent's session says: a task, tools, turns that grow, tool results. A function of the seed alone."""

from __future__ import annotations

import random

import msgspec

from pdctl.load.profile import Profile
from pdctl.load.reply import Call, Reply

_VOCABULARY = """harbour ledger copper window orange signal meadow engine letter garden bridge market silver winter
lantern river castle button thread mirror pepper basket candle violin anchor blanket compass feather"""
WORDS = tuple(_VOCABULARY.split())
WORDS_PER_TOKEN = 0.6
"""Of these words, on the tokenizers we know."""
TOOLS: tuple[dict[str, object], ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string"}},
                "required": [parameter],
            },
        },
    }
    for name, description, parameter in (
        ("read_file", "Return the text of a file.", "path"),
        ("search", "Return lines that contain a text.", "text"),
        ("run_tests", "Run the tests below a folder.", "folder"),
    )
)
FORCED_SHARE = 0.5
"""Turns of a session with tools that must call one: a small model seldom does so by itself."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one request asks for."""

    messages: tuple[dict[str, object], ...]
    output_tokens: int
    tools: tuple[dict[str, object], ...] = ()
    is_forced: bool = False

    def body(self, model: str) -> dict[str, object]:
        """Return the chat request."""
        body: dict[str, object] = {
            "model": model,
            "messages": self.messages,
            "max_tokens": self.output_tokens,
            "temperature": 0,
            "stream": True,
        }
        if self.tools:
            body["tools"] = self.tools
            body["tool_choice"] = "required" if self.is_forced else "auto"
        return body


class Conversation:
    """One session: says the next turn, hears the answer."""

    def __init__(self, profile: Profile, number: int) -> None:
        self._profile = profile
        # A string: random.Random hashes no tuple, and seeds of neighbours must have nothing in common.
        self.chance = random.Random(f"{profile.seed}/{number}")
        self._messages: list[dict[str, object]] = [
            {"role": "system", "content": f"You are agent {number}. Work on the task step by step."}
        ]
        self._tools = TOOLS if self.chance.random() < profile.tool_rate else ()
        self.turns = self._profile.turns.spread(self.chance)

    def next_turn(self) -> Turn:
        """Return the next request."""
        chance, profile = self.chance, self._profile
        self._messages.append({"role": "user", "content": task(chance, profile.prompt_tokens.spread(chance))})
        return Turn(
            messages=tuple(self._messages),
            output_tokens=profile.output_tokens.spread(chance),
            tools=self._tools,
            is_forced=bool(self._tools) and chance.random() < FORCED_SHARE,
        )

    def hear(self, reply: Reply) -> None:
        """Take the answer into the history, and answer its tool calls as a tool would."""
        if not reply.calls:
            self._messages.append({"role": "assistant", "content": reply.text or "-"})
            return
        self._messages.append(
            {"role": "assistant", "content": reply.text, "tool_calls": list(map(_shown, reply.calls))}
        )
        for call in reply.calls:
            self._messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": task(self.chance, 24)},
            )

    def pause_s(self) -> float:
        """Return how long the agent thinks before its next turn."""
        return self._profile.think_s.even(self.chance)

    def leaves_after_s(self) -> float | None:
        """Return when the client leaves this request, or None where it stays."""
        if self.chance.random() >= self._profile.abort_rate:
            return None
        return self.chance.uniform(0.0, self._profile.abort_within_s)

    def is_canary(self) -> bool:
        """Return whether the next request is one whose answer is known."""
        return self.chance.random() < self._profile.canary_rate


def task(chance: random.Random, tokens: int) -> str:
    """Return words of about that many tokens, in an order that no prompt had before."""
    count = max(1, round(tokens * WORDS_PER_TOKEN))
    return " ".join(chance.choice(WORDS) for _ in range(count))


def _shown(call: Call) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
