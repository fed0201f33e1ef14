"""Tokenizers from both kinds of checkpoint."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import CheckpointError, RequestError
from engine.frontend.prompts import LONG_TEXT, token_ids
from engine.frontend.tokenizer import Tokenizer, load_tokenizer
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_model import CHAT_TEMPLATE, write_tiny_model

SMOLLM2_IDS = {
    "Hello world": [19556, 905],
    "<|im_start|>user\n": [1, 4093, 198],
}


@pytest.fixture(scope="module")
def tiny(tiny_model_dir: Path) -> Tokenizer:
    """The tokenizer of the tiny directory."""
    return load_tokenizer(tiny_model_dir)


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The same one out of a GGUF file."""
    return load_tokenizer(write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf"))


def test_merges_and_special_tokens(tiny: Tokenizer) -> None:
    """`hell` is one token (3 + 256 + 2), markers are single tokens, a lone byte is 3 + the byte."""
    assert tiny.encode("<|im_start|>hello<|im_end|>", add_special=True) == [1, 261, 114, 2]


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60))
def test_gguf_and_directory_agree(tiny: Tokenizer, tiny_gguf: Tokenizer, text: str) -> None:
    """Both give the same ids, which decode to the text."""
    ids = tiny.encode(text, add_special=False)
    assert tiny_gguf.encode(text, add_special=False) == ids
    assert tiny_gguf.decode(ids, skip_special=True) == text


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60))
def test_token_bytes_add_up_to_the_text(tiny: Tokenizer, text: str) -> None:
    """The bytes of the tokens, one after the other, are the text in UTF-8."""
    ids = tiny.encode(text, add_special=False)
    assert b"".join(tiny.token_bytes(one) for one in ids) == text.encode()


def test_what_belongs_to_it(tiny: Tokenizer, tiny_gguf: Tokenizer) -> None:
    """Size, begin and end tokens and chat template come with the tokenizer."""
    for tokenizer in (tiny, tiny_gguf):
        assert (tokenizer.vocab_size, tokenizer.bos_id) == (264, 1)
        assert tokenizer.chat_template == CHAT_TEMPLATE
        assert tokenizer.is_byte_level
    assert tiny.eos_ids == (2, 0)
    assert tiny_gguf.eos_ids == (2,)


def test_special_tokens_are_skipped_or_shown(tiny: Tokenizer) -> None:
    """`decode` leaves them out when asked; `token_text` names them."""
    assert tiny.decode([1, 261, 114, 2], skip_special=True) == "hello"
    assert tiny.decode([1, 261, 114, 2], skip_special=False) == "<|im_start|>hello<|im_end|>"
    assert tiny.token_text(2) == "<|im_end|>"
    assert tiny.is_special(2)
    assert not tiny.is_special(261)


def with_added_word(folder: Path, token_id: int) -> Path:
    """Write a checkpoint whose tokenizer has a word <tool> that its model, of 264 ids, may lack."""
    write_tiny_model(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append(content["added_tokens"][0] | {"id": token_id, "content": "<tool>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def test_ids_that_the_model_lacks_are_told_and_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its embeddings would be read beyond their end: a warning at the start, a 400 for who needs one."""
    tokenizer = load_tokenizer(with_added_word(tmp_path / "m", 264))
    assert (tokenizer.size, tokenizer.vocab_size) == (265, 264)
    assert "has ids up to 264, the model only below 264" in caplog.text
    assert asyncio.run(token_ids("hello", tokenizer, "text")) == [261, 114]
    for prompt in ("hello <tool>", "hello <tool>" + "x" * LONG_TEXT, [5, 264]):
        with pytest.raises(RequestError, match=r"text: token id 264 is not in the model's vocabulary of 264") as caught:
            asyncio.run(token_ids(prompt, tokenizer, "text"))
        assert caught.value.status == 400


def test_a_tokenizer_within_the_model_is_not_warned_of(tiny_model_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The usual case says nothing."""
    load_tokenizer(tiny_model_dir)
    assert caplog.text == ""


def test_unknown_ids_are_nothing(tiny: Tokenizer) -> None:
    """A model's vocabulary can be padded beyond its tokenizer's."""
    assert tiny.token_text(9999) == ""
    assert tiny.token_bytes(9999) == b""


def test_loading_needs_no_torch(tiny_model_dir: Path) -> None:
    """The API process must stay small."""
    code = (
        "import sys; from engine.frontend.tokenizer import load_tokenizer; "
        f"load_tokenizer({str(tiny_model_dir)!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("pre", "ids_per_digit_run"), [("smollm", 4), ("gpt-2", 4), ("qwen2", 4), ("llama-bpe", 4)])
def test_known_kinds_load_and_round_trip(tmp_path: Path, pre: str, ids_per_digit_run: int) -> None:
    """Every supported kind builds, cuts digits (no merge joins them here) and gives the text back."""
    tokenizer = load_tokenizer(write_tiny_gguf(tmp_path / "t.gguf", pre=pre))
    text = "it's 1234 hells\r\n\n  naïve 世界 !?"
    assert len(tokenizer.encode("1234", add_special=False)) == ids_per_digit_run
    assert tokenizer.decode(tokenizer.encode(text, add_special=False), skip_special=False) == text


def test_llama_adds_its_begin_token(tmp_path: Path) -> None:
    """The kind llama-bpe begins a text with the begin token when special tokens are wanted; gpt-2 does
    not.
    """
    llama = load_tokenizer(write_tiny_gguf(tmp_path / "l.gguf", pre="llama-bpe"))
    assert llama.encode("t", add_special=True)[0] == 1
    assert llama.encode("t", add_special=False)[0] != 1


def test_an_unknown_kind_is_named(tmp_path: Path) -> None:
    """The error says which one, and which are known."""
    path = write_tiny_gguf(tmp_path / "t.gguf", pre="tekken")
    with pytest.raises(CheckpointError, match=r"'tekken' is not supported; supported are smollm, gpt-2"):
        load_tokenizer(path)


def test_merges_that_do_not_fit_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged list of merges is said so."""
    monkeypatch.setattr("tests.tiny_gguf.MERGES", (("h", "x"),))
    with pytest.raises(CheckpointError, match="merges are corrupt"):
        load_tokenizer(write_tiny_gguf(tmp_path / "t.gguf"))


@pytest.mark.parametrize(
    ("content", "word"), [(None, "tokenizer.json is missing"), ("{}", "corrupt"), ("\x00", "corrupt")]
)
def test_a_broken_directory_is_one_clear_error(tmp_path: Path, content: str | None, word: str) -> None:
    """Missing and damaged files are told apart."""
    folder = write_tiny_model(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    if content is not None:
        (folder / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=word):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("one", "one"),
        ([{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}], "three"),
        (None, None),
    ],
)
def test_chat_templates_of_all_spellings(tmp_path: Path, template: object, expected: str | None) -> None:
    """One template, several by name, or none."""
    folder = write_tiny_model(tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert load_tokenizer(folder).chat_template == expected


def test_a_template_file_wins(tmp_path: Path) -> None:
    """transformers 5 writes chat_template.jinja."""
    folder = write_tiny_model(tmp_path / "m")
    (folder / "chat_template.jinja").write_text("from the file")
    assert load_tokenizer(folder).chat_template == "from the file"


def test_truncation_in_the_file_is_switched_off(tmp_path: Path) -> None:
    """A leftover of training must not cut prompts."""
    folder = write_tiny_model(tmp_path / "m")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert len(load_tokenizer(folder).encode("z" * 50, add_special=True)) == 50


def test_smollm2(smollm2_path: Path) -> None:
    """Known texts have known ids, and each digit is a token."""
    tokenizer = load_tokenizer(smollm2_path)
    for text, ids in SMOLLM2_IDS.items():
        assert tokenizer.encode(text, add_special=True) == ids
    assert len(tokenizer.encode("20261129", add_special=True)) == 8
    assert tokenizer.vocab_size == 49152
    assert tokenizer.eos_ids == (2,)
    assert tokenizer.chat_template is not None
    assert "<|im_start|>" in tokenizer.chat_template
