"""From deltas to text that a client may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.frontend.sequence import SequenceText
from engine.frontend.tokenizer import Tokenizer, load_tokenizer
from engine.messages import Delta, FinishReason, TokenLogprob
from tests.tiny_model import byte_symbols, vocabulary

IDS = vocabulary()


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return load_tokenizer(tiny_model_dir)


def delta(*token_ids: int, finish: FinishReason | None = None, stop: int | None = None) -> Delta:
    return Delta(rid="r", token_ids=list(token_ids), finish=finish, stop_token_id=stop)


def test_half_a_character_is_not_shown(tokenizer: Tokenizer) -> None:
    """The two bytes of é come out together."""
    first, second = (IDS[byte_symbols()[byte]] for byte in "é".encode())
    text = SequenceText(tokenizer, 0, ())
    assert text.take(delta(first)).text == ""
    assert text.take(delta(second)).text == "é"


def test_last_half_character_is_shown_as_replacement(tokenizer: Tokenizer) -> None:
    """An answer cut within a character shows that something was there."""
    first = IDS[byte_symbols()["é".encode()[0]]]
    text = SequenceText(tokenizer, 0, ())
    assert text.take(delta(first, finish=FinishReason.LENGTH)).text == "\N{REPLACEMENT CHARACTER}"


def test_stop_token_is_no_text_but_a_token(tokenizer: Tokenizer) -> None:
    """A stop token of the client's, ordinary text otherwise, is counted and not shown."""
    piece = SequenceText(tokenizer, 0, ()).take(delta(IDS["hell"], IDS["o"], finish=FinishReason.STOP, stop=IDS["o"]))
    assert (piece.text, piece.token_ids, piece.matched) == ("hell", [IDS["hell"], IDS["o"]], IDS["o"])


def test_stop_string_ends_within_a_delta(tokenizer: Tokenizer) -> None:
    """Tokens and logprobs behind the match are dropped with the text."""
    tokens = [IDS[symbol] for symbol in "abcd"]
    logprobs = [TokenLogprob(token, -1.0) for token in tokens]
    text = SequenceText(tokenizer, 0, ("b",))
    piece = text.take(Delta(rid="r", token_ids=tokens, logprobs=logprobs))
    assert (piece.text, piece.finish, piece.matched) == ("a", FinishReason.STOP, "b")
    assert piece.token_ids == tokens[:2]
    assert piece.logprobs == logprobs[:2]
    assert text.finished


def test_stop_string_found_in_the_last_flush(tokenizer: Tokenizer) -> None:
    """A match that only the end of the answer completes still counts."""
    first = IDS[byte_symbols()["é".encode()[0]]]
    text = SequenceText(tokenizer, 0, ("a\N{REPLACEMENT CHARACTER}",))
    piece = text.take(delta(IDS["a"], first, finish=FinishReason.LENGTH))
    assert (piece.text, piece.finish) == ("", FinishReason.STOP)


def test_minimum_of_tokens_hides_stop_strings(tokenizer: Tokenizer) -> None:
    """Within min_tokens a stop string is ordinary text."""
    text = SequenceText(tokenizer, 0, ("a",), min_tokens=2)
    piece = text.take(delta(IDS["a"], IDS["a"], IDS["b"], IDS["a"], IDS["c"]))
    assert (piece.text, piece.finish) == ("aab", FinishReason.STOP)
