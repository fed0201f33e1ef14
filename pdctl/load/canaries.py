"""Requests whose right answer is known: silent corruption shows in what is said, while every status is 200.

Our engine's answers are scored: prefill says for each token how far it is from the model's own choice (DESIGN 8's
rule), so any prompt is a canary. Elsewhere a question with a known answer has to do.
"""

from __future__ import annotations

import asyncio
import random
from enum import StrEnum
from typing import Protocol

import msgspec

from pdctl.collect.http import InstanceClient, Timeouts, client_for
from pdctl.deployment.model import Instance
from pdctl.load.conversation import task
from pdctl.load.reply import Reply
from pdctl.load.wire import Post
from pdctl.probe.prompt import fresh_id
from pdctl.probe.report import Output
from pdctl.probe.scoring import score, token_ids

SCORED_TOKENS = 16
SCORE_S = 60.0
_ASK = Timeouts(connect_s=2.0, read_s=10.0, total_s=10.0)
QUESTIONS = (
    ("What is the capital of France? Answer in one short sentence.", "paris"),
    ("What is the capital of Italy? Answer in one short sentence.", "rome"),
    ("How many days has a week? Answer with the number.", "7|seven"),
    ("What colour is a clear sky by day? Answer in one word.", "blue"),
)
"""Question, and what the answer must contain: one of the words between the bars."""


class Content(StrEnum):
    """What an answer is worth."""

    RIGHT = "right"
    WRONG = "wrong"
    UNCHECKED = "unchecked"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One canary that came back."""

    content: Content
    why: str


class Canary(Protocol):
    """A request and the judge of its answer."""

    path: str

    def body(self, model: str) -> dict[str, object]: ...

    async def judged(self, reply: Reply, post: Post) -> Checked: ...


class Canaries(Protocol):
    """Makes canaries; close it when the load has ended."""

    def draw(self, chance: random.Random) -> Canary: ...

    def close(self) -> None: ...


class KnownAnswer:
    """A question with a known answer, for any engine."""

    path = "/v1/chat/completions"

    def __init__(self, chance: random.Random) -> None:
        self._question, self._words = chance.choice(QUESTIONS)
        self._notes = task(chance, chance.randint(8, 128))

    def body(self, model: str) -> dict[str, object]:
        """Return the chat request; what stands before the question is new each time, so no cache answers it."""
        content = f"Notes that do not matter: {self._notes}.\n{self._question}"
        messages = [{"role": "user", "content": content}]
        return {"model": model, "messages": messages, "max_tokens": 48, "temperature": 0, "stream": True}

    async def judged(self, reply: Reply, post: Post) -> Checked:
        """Compare the text."""
        if any(word in reply.text.lower() for word in self._words.split("|")):
            return Checked(content=Content.RIGHT, why=f"it names {self._words}")
        return Checked(content=Content.WRONG, why=f"{self._question} -> {' '.join(reply.text.split())[:80]!r}")


class KnownAnswers:
    """Canaries of other engines."""

    def draw(self, chance: random.Random) -> KnownAnswer:
        """Return the next."""
        return KnownAnswer(chance)

    def close(self) -> None:
        """Nothing is held."""


class _Generated(msgspec.Struct, frozen=True):
    output_ids: list[int]


class Scored:
    """A prompt of random words for our engine, scored by one of its prefills."""

    path = "/generate"

    def __init__(self, scorer: InstanceClient, chance: random.Random) -> None:
        self._scorer = scorer
        self._text = task(chance, chance.randint(16, 192))

    def body(self, model: str) -> dict[str, object]:
        """Return the request. It ends by its length: an answer that ends at its first token would move no KV."""
        sampling = {"temperature": 0, "max_new_tokens": SCORED_TOKENS, "ignore_eos": True}
        return {"text": self._text, "model": model, "sampling_params": sampling, "stream": False}

    async def judged(self, reply: Reply, post: Post) -> Checked:
        """Have it scored, beside the other requests."""
        return await asyncio.to_thread(self._scored, post.body)

    def _scored(self, body: bytes) -> Checked:
        try:
            output_ids = msgspec.json.decode(body, type=_Generated).output_ids
        except msgspec.DecodeError as error:
            return Checked(content=Content.UNCHECKED, why=f"the answer cannot be read: {error}")
        prompt_ids = token_ids(self._scorer, self._text)
        if prompt_ids is None:
            return Checked(content=Content.UNCHECKED, why="prefill does not tell the prompt's token ids")
        said = score(self._scorer, prompt_ids, output_ids, fresh_id(), SCORE_S)
        content = {Output.SAME: Content.RIGHT, Output.GARBLED: Content.WRONG}.get(said.output, Content.UNCHECKED)
        return Checked(content=content, why=said.why)


class ScoredAnswers:
    """Canaries of our engine."""

    def __init__(self, prefill: Instance) -> None:
        self._client = client_for(prefill, _ASK)

    def draw(self, chance: random.Random) -> Scored:
        """Return the next."""
        return Scored(self._client, chance)

    def close(self) -> None:
        """Close the connections to the scorer."""
        self._client.close()
