"""Text to token ids and back, from either kind of checkpoint. Does not import torch."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import tokenizers

from engine.errors import CheckpointError
from engine.frontend.gguf_tokenizer import gguf_template, gguf_tokenizer
from engine.model.checkpoint import open_checkpoint
from engine.model.gguf_file import read_gguf_header
from engine.model.safetensors_dir import read_json

log = logging.getLogger(__name__)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
"""How SentencePiece writes a token that is one byte."""


class Tokenizer:
    """A model's tokenizer, its end tokens and its chat template. Threads may share it."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        bos_id: int | None,
        eos_ids: tuple[int, ...],
        chat_template: str | None,
        embeddings: int,
    ) -> None:
        """`embeddings`: ids that the model can be given."""
        self._backend = backend
        self.bos_id = bos_id
        self.eos_ids = eos_ids
        self.chat_template = chat_template
        """Jinja source, or None when the model has none."""
        self.size = 1 + max(backend.get_vocab(with_added_tokens=True).values())
        """The ids of the tokenizer are below this; an added word may be one that the model was never given."""
        self.vocab_size = min(self.size, embeddings)
        """The ids of a request must be below this: those that the model has, too."""
        self.is_byte_level = isinstance(backend.decoder, tokenizers.decoders.ByteLevel)
        """Each token is a fixed sequence of bytes: `token_bytes` may be used."""
        added = backend.get_added_tokens_decoder()
        self._special = frozenset(token_id for token_id, token in added.items() if token.special)

    def to_json(self) -> str:
        """Return the content of a tokenizer.json."""
        return self._backend.to_str()

    def encode(self, text: str, add_special: bool) -> list[int]:
        """Return the ids; special tokens written in the text become their ids.

        `add_special` adds what the model wants around a text (a begin token); chat templates write it.
        """
        # The batch call lets go of the GIL (`encode` stalls the event loop for 0.5 s on a text of 1 MB) and
        # computes no offsets.
        return self._backend.encode_batch_fast([text], add_special_tokens=add_special)[0].ids

    def decode(self, ids: list[int], skip_special: bool) -> str:
        """Return the text; bytes that are no UTF-8 become U+FFFD, unknown ids nothing."""
        return self._backend.decode(ids, skip_special_tokens=skip_special)

    def token_text(self, token_id: int) -> str:
        """Return what one token adds to a text, special tokens by their name."""
        return self.decode([token_id], skip_special=False)

    def token_name(self, token_id: int) -> str:
        """Return the text, or `bytes:\\xe2\\x82` (OpenAI) of what is only a part of a character."""
        raw = self.utf8(token_id)
        try:
            raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return self.token_text(token_id)

    def utf8(self, token_id: int) -> bytes:
        """Return the bytes that one token adds to a text, also where they are only a part of a character."""
        if self.is_byte_level:
            return self.token_bytes(token_id)
        text = self.token_text(token_id)
        byte = BYTE_TOKEN.fullmatch(self._backend.id_to_token(token_id) or "")
        return bytes.fromhex(byte[1]) if byte and REPLACEMENT in text else text.encode()

    def is_special(self, token_id: int) -> bool:
        """Return whether the token is a marker rather than text."""
        return token_id in self._special

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token of a byte-level tokenizer; none for an unknown id."""
        token = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        try:
            return bytes(BYTE_OF_SYMBOL[symbol] for symbol in token)
        except KeyError:
            # Added words are plain text (as in the library's own byte-level decoder).
            return token.encode()


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a GGUF file or Hugging Face directory; SmolLM2 takes 0.2 s.

    Raises CheckpointError when there is none, it is corrupt, or of an unsupported kind.
    """
    path = Path(path)
    config = open_checkpoint(path).config
    try:
        if path.is_dir():
            backend, template = _from_directory(path), _directory_template(path)
        else:
            header = read_gguf_header(path)
            backend, template = gguf_tokenizer(header), gguf_template(header)
    except CheckpointError as error:
        raise CheckpointError(f"cannot load the tokenizer of {path}: {error}") from None
    tokenizer = Tokenizer(backend, config.bos_id, config.eos_ids, template, config.vocab)
    if tokenizer.size > config.vocab:
        log.warning(
            "the tokenizer of %s has ids up to %d, the model only below %d: texts that need the others are refused",
            path, tokenizer.size - 1, config.vocab,
        )  # fmt: skip
    return tokenizer


def _from_directory(path: Path) -> tokenizers.Tokenizer:
    file = path / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError(f"{file.name} is missing; convert the tokenizer that is there to this format")
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # The library raises bare Exception for whatever is wrong with the file.
        raise CheckpointError(f"{file.name} is corrupt: {error}") from None
    # Training leftovers in the file would cut or pad prompts silently.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _directory_template(path: Path) -> str | None:
    """Return the chat template: a file of its own, or in tokenizer_config.json, one or several by name."""
    own = path / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    config = path / "tokenizer_config.json"
    template = read_json(config).get("chat_template") if config.is_file() else None
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _byte_of_symbol() -> dict[str, int]:
    """Return GPT-2's stand-ins for bytes: themselves where printable, else U+0100 and up in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF_SYMBOL = _byte_of_symbol()
