"""Text from tokens as they come."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models

from engine.frontend.detokenizer import Detokenizer
from engine.frontend.tokenizer import Tokenizer, load_tokenizer

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


@pytest.fixture(scope="module")
def byte_level(tiny_model_dir: Path) -> Tokenizer:
    """The usual kind."""
    return load_tokenizer(tiny_model_dir)


@pytest.fixture(scope="module")
def sentencepiece() -> Tokenizer:
    """A tokenizer of Llama 2's kind: ids 0..255 are bytes, then some words, 260 is special."""
    words = [f"<0x{byte:02X}>" for byte in range(256)] + [SPACE + "a", "b", SPACE, "c"]
    backend = tokenizers.Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken("</s>", special=True)])
    return Tokenizer(backend, None, (260,), None, 261)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Return what each token adds, then what is left."""
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push([one]) for one in ids), detokenizer.flush()]


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(0, 270), max_size=40))
def test_byte_level_pieces_add_up(byte_level: Tokenizer, ids: list[int]) -> None:
    """Any tokens at all, broken UTF-8, special and unknown ones among them: the pieces make up the whole."""
    assert "".join(streamed(byte_level, ids)) == byte_level.decode(ids, skip_special=True)


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(st.sampled_from([256, 257, 258, 259, 260]) | st.characters(exclude_categories=["Cs"]), max_size=20)
)
def test_sentencepiece_pieces_add_up(sentencepiece: Tokenizer, parts: list[int | str]) -> None:
    """The same where the decoder looks at neighbours: words, lone spaces, characters spelt in bytes."""
    ids = [one for part in parts for one in ([part] if isinstance(part, int) else part.encode())]
    assert "".join(streamed(sentencepiece, ids)) == sentencepiece.decode(ids, skip_special=True)


def test_sentencepiece_keeps_text_before_a_broken_character(sentencepiece: Tokenizer) -> None:
    """A newline that is out stays, though the library would spoil the whole run of bytes."""
    assert streamed(sentencepiece, [257, 0x0A, 0xE4]) == ["b", "\n", "", "\ufffd"]


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=20))
def test_no_half_characters(byte_level: Tokenizer, text: str) -> None:
    """Of valid text no piece has a replacement character that the text has not."""
    pieces = streamed(byte_level, byte_level.encode(text, add_special=False))
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")


def test_a_character_comes_with_its_last_byte(byte_level: Tokenizer) -> None:
    """The four bytes of an emoji: nothing three times, then the whole."""
    ids = byte_level.encode("\N{OCTOPUS}", add_special=False)
    assert streamed(byte_level, ids) == ["", "", "", "\N{OCTOPUS}", ""]


def test_flush_shows_what_never_became_a_character(byte_level: Tokenizer) -> None:
    """An answer cut within a character ends in one replacement character."""
    ids = byte_level.encode("\N{OCTOPUS}", add_special=False)[:2]
    assert streamed(byte_level, ids) == ["", "", "\ufffd"]


def test_spaces_of_sentencepiece_stay(sentencepiece: Tokenizer) -> None:
    """The first space of a text is dropped, later ones are not, though each token is decoded alone."""
    assert streamed(sentencepiece, [256, 256, 257, 256]) == ["a", " a", "b", " a", ""]


def test_several_tokens_at_once(byte_level: Tokenizer) -> None:
    """A push may carry any number of tokens."""
    detokenizer = Detokenizer(byte_level)
    assert detokenizer.push(byte_level.encode("hello the", add_special=False)) == "hello the"
    assert detokenizer.push([]) == ""


def test_a_byte_token_has_its_byte(sentencepiece: Tokenizer, byte_level: Tokenizer) -> None:
    """Of either kind of tokenizer, and a name that no other byte has; a word's bytes are its text's."""
    part = byte_level.encode("€", add_special=False)[0]
    for tokenizer, token_id in ((sentencepiece, 0xE2), (byte_level, part)):
        assert tokenizer.utf8(token_id) == b"\xe2"
        assert tokenizer.token_name(token_id) == "bytes:\\xe2"
    assert (sentencepiece.utf8(ord("A")), sentencepiece.token_name(ord("A"))) == (b"A", "A")
    assert (sentencepiece.utf8(257), sentencepiece.token_name(257)) == (b"b", "b")
