"""The tiny model that other tests stand on."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from tests.tiny_model import byte_symbols, write_tiny_model


def test_same_seed_writes_the_same_weights(tmp_path: Path) -> None:
    """Two processes that make the model get equal files, so a prefill and a decode agree."""
    first, second = write_tiny_model(tmp_path / "a"), write_tiny_model(tmp_path / "b")
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


def test_byte_symbols_are_those_of_gpt2() -> None:
    """Space is Ġ, newline is Ċ, and all 256 differ."""
    symbols = byte_symbols()
    assert symbols[0x20] == "Ġ"
    assert symbols[0x0A] == "Ċ"
    assert len(set(symbols)) == 256


def test_special_tokens_are_single_ids(tiny_model_dir: Path) -> None:
    """The text of a chat template's markers becomes their ids."""
    tokenizer = Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|><|im_end|>").ids == [1, 2]
