"""The GGUF header parser against the `gguf` package's writer, and against damage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.gguf_header import GgufError, parse_header
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_model import MERGES, vocabulary


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole file of the tiny model."""
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


def test_metadata_read_as_written(raw: bytes) -> None:
    """Numbers, strings and lists of both come back."""
    metadata = parse_header(raw).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.block_count"] == 2
    assert metadata["llama.rope.freq_base"] == 10000.0
    assert metadata["tokenizer.ggml.tokens"] == list(vocabulary())
    assert metadata["tokenizer.ggml.merges"] == [" ".join(pair) for pair in MERGES]


def test_tensor_table_points_at_the_data(raw: bytes) -> None:
    """The table has 21 tensors, outermost dimension first, and the last one ends the file (but for
    padding).
    """
    header = parse_header(raw)
    table = {tensor.name: tensor for tensor in header.tensors}
    assert len(table) == 21
    assert table["blk.0.attn_k.weight"].shape == (16, 32)
    last = max(header.tensors, key=lambda tensor: tensor.offset)
    end = header.data_start + last.offset + 4 * last.shape[0] * last.shape[-1]
    assert 0 <= len(raw) - end < 32


def test_every_truncation_of_the_header_is_an_error(raw: bytes) -> None:
    """No prefix of a header parses; cut at every 7th byte, which meets every kind of field."""
    end = parse_header(raw).data_start - 32
    for size in range(0, end, 7):
        with pytest.raises(GgufError):
            parse_header(raw[:size])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_an_error_or_harmless(raw: bytes, data: st.DataObject) -> None:
    """Overwritten bytes never raise anything but GgufError, nor take memory for a made-up count."""
    damaged = bytearray(raw)
    at = data.draw(st.integers(0, 12_000))
    piece = data.draw(st.binary(min_size=1, max_size=9))
    damaged[at : at + len(piece)] = piece
    try:
        parse_header(damaged)
    except GgufError as error:
        assert str(error)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_an_error(noise: bytes) -> None:
    """Bytes after the magic that mean nothing are refused, whatever they are."""
    with pytest.raises(GgufError):
        parse_header(b"GGUF" + struct.pack("<I", 3) + b"\xff" * 4 + noise)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"PK\x03\x04" + b"0" * 40, "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + b"0" * 40, "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + b"0" * 40, "little-endian"),
    ],
)
def test_other_files_are_named(raw: bytes, word: str) -> None:
    """What is no readable GGUF is said so."""
    with pytest.raises(GgufError, match=word):
        parse_header(raw)
