"""Token ids to text as they come, without ever showing half a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from engine.frontend.tokenizer import REPLACEMENT, Tokenizer


class Detokenizer:
    """The text of one answer: the pieces add up to `decode` of all its tokens, special tokens left out.

    One exception: where a run of SentencePiece byte tokens is no UTF-8, `decode` spoils the whole run; here
    what came before the broken character stays. Constant work per token, amortised.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        stream = _ByteStream if tokenizer.is_byte_level else _WindowStream
        self._stream: _Stream = stream(tokenizer)

    def push(self, ids: Sequence[int]) -> str:
        """Return the text that is settled by these tokens; may be empty."""
        return self._stream.push(ids)

    def flush(self) -> str:
        """Return what is left at the end of the answer: U+FFFD for bytes that never became a character."""
        return self._stream.flush()


class _Stream(Protocol):
    def push(self, ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class _ByteStream:
    """For byte-level tokenizers: the tokens' bytes through Python's own incremental UTF-8 decoder."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Sequence[int]) -> str:
        tokenizer = self._tokenizer
        return self._utf8.decode(b"".join(tokenizer.token_bytes(one) for one in ids if not tokenizer.is_special(one)))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class _WindowStream:
    """For the others, whose decoders look at neighbours (a leading space, runs of byte tokens).

    Decodes the tokens since the last settled place but one, and shows what goes beyond it. Text that ends in
    U+FFFD may still become a character and waits.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._context = 0
        """Tokens at the start of `_ids` whose text is out already."""

    def push(self, ids: Sequence[int]) -> str:
        self._ids += ids
        text, shown = self._decode(self._ids), self._decode(self._ids[: self._context])
        if len(text) <= len(shown) or text.endswith(REPLACEMENT):
            return ""
        self._ids = self._ids[self._context :]
        self._context = len(self._ids)
        return text[len(shown) :]

    def flush(self) -> str:
        text, shown = self._decode(self._ids), self._decode(self._ids[: self._context])
        self._context = len(self._ids)
        return text[len(shown) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special=True)
