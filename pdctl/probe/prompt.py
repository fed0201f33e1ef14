"""What a probe asks. Each prompt begins with a fresh nonce: no prefix cache can answer without moving KV."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from pdctl.evidence.records import OWN_REQUEST

_STORY = (
    "The ferry leaves the north pier at seven and carries flour, salt, oranges and letters to the island . "
    "On the way back it brings wool, cheese and whoever wants to see the town . "
)
FILLER = tuple(_STORY.split())

QUESTION = "What is the capital of France? Answer in one short sentence."
KNOWN_ANSWER = "Paris"

WORDS_PER_TOKEN = 0.75
"""A guess for English text, where no tokenizer can be asked."""


def fresh_id() -> str:
    """Return an id that marks a request as a probe of ours."""
    return f"{OWN_REQUEST}{secrets.token_hex(8)}"


def fresh_nonce() -> str:
    """Return a word that no prompt began with before."""
    return secrets.token_hex(8)


def filler(words: int) -> str:
    """Return that many words of English."""
    return " ".join(FILLER[index % len(FILLER)] for index in range(max(0, words)))


def sized_text(nonce: str, tokens: int, count: Callable[[str], int | None]) -> str:
    """Return a text of about `tokens` tokens (within a few percent) that begins with the nonce.

    `count` asks a tokenizer, twice at most; where it answers None the size is a guess.
    """
    words = max(1, round(tokens * WORDS_PER_TOKEN))
    for _ in range(2):
        text = f"{nonce} {filler(words)}"
        counted = count(text)
        if counted is None or counted == tokens:
            return text
        # The nonce costs some tokens whatever follows, so scale the words by the difference.
        words = max(1, words + round((tokens - counted) * words / counted))
    return f"{nonce} {filler(words)}"


def chat_question(nonce: str, tokens: int) -> str:
    """Return a question with a known answer, padded to about `tokens` tokens."""
    padding = round(tokens * WORDS_PER_TOKEN) - len(QUESTION.split())
    notes = f" Notes that do not matter: {filler(padding)}" if padding > 5 else ""
    return f"{nonce}{notes}\n{QUESTION}"
