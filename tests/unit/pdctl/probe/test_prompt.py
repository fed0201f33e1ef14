"""What is asked."""

from __future__ import annotations

import pytest

from pdctl.probe.prompt import QUESTION, chat_question, fresh_id, fresh_nonce, sized_text


@pytest.mark.parametrize("tokens", [16, 128, 2000])
@pytest.mark.parametrize("per_word", [1, 2, 5])
def test_text_has_the_size_whatever_the_tokenizer(tokens: int, per_word: int) -> None:
    """Two questions to the tokenizer are enough to come within a word of the size, for dense and sparse ones."""
    text = sized_text("nonce", tokens, lambda sample: len(sample.split()) * per_word)
    assert abs(len(text.split()) * per_word - tokens) <= max(per_word, 2 * per_word)


def test_text_without_a_tokenizer_is_a_guess() -> None:
    """Where nobody counts, the words are three quarters of the tokens."""
    assert len(sized_text("nonce", 400, lambda _: None).split()) == 301


def test_nonce_comes_first_and_differs() -> None:
    """The first word is new each time, so that no prefix can be cached."""
    nonces = {fresh_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert chat_question("abc", 128).split()[0] == "abc"
    assert sized_text("abc", 64, len).split()[0] == "abc"


def test_question_is_asked_last_and_padded() -> None:
    """The question ends the prompt; a longer prompt is padded before it."""
    short, long = chat_question("n", 16), chat_question("n", 400)
    assert short.endswith(QUESTION)
    assert long.endswith(QUESTION)
    assert 280 <= len(long.split()) <= 320


def test_ids_are_tagged() -> None:
    """Operators and the diagnosis tell a probe from a user by its id."""
    assert fresh_id().startswith("pdctl-probe-")
