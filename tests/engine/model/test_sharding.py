"""Pieces of stored tensors: what a rank reads is what it would have cut out of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.model.checkpoint import open_checkpoint
from engine.model.sharding import piece_of
from engine.model.stored import Checkpoint, Piece
from engine.parallel.deal import deal
from tests.tiny_gguf import write_tiny_gguf

KINDS = ("safetensors", "F32", "BF16", "Q4_1", "Q8_0")


@pytest.fixture(scope="module", params=KINDS)
def checkpoint(
    request: pytest.FixtureRequest, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoint:
    if request.param == "safetensors":
        return open_checkpoint(tiny_model_dir)
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return open_checkpoint(write_tiny_gguf(path, kind=GGMLQuantizationType[request.param]))


def cut(tensor: torch.Tensor, piece: Piece) -> torch.Tensor:
    if piece.rows is not None:
        tensor = tensor[piece.rows.start : piece.rows.stop]
    return tensor if piece.columns is None else tensor[:, piece.columns.start : piece.columns.stop]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_rank_reads_what_it_would_have_cut_out(checkpoint: Checkpoint, size: int) -> None:
    """Of every tensor, in both formats, with whole and with halved quantisation blocks."""
    whole = dict(checkpoint.tensors())
    for share in deal(checkpoint.config, size):
        pieces = {name: piece_of(name, checkpoint.config, share) for name in whole}
        for name, tensor in checkpoint.tensors(lambda name, pieces=pieces: pieces[name]):  # type: ignore[misc]
            assert torch.equal(tensor, cut(whole[name], pieces[name])), name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.data())
def test_any_rows_and_columns_can_be_read(checkpoint: Checkpoint, data: st.DataObject) -> None:
    """Also ones that begin and end inside a quantisation block."""
    name = "model.layers.1.mlp.down_proj.weight"
    whole = dict(checkpoint.tensors())[name]
    rows, columns = (
        range(start, data.draw(st.integers(start + 1, length)))
        for length in whole.shape
        for start in [data.draw(st.integers(0, length - 1))]
    )
    piece = Piece(rows, columns)
    read = dict(checkpoint.tensors(lambda _: piece if _ == name else Piece()))[name]
    assert torch.equal(read, cut(whole, piece))
    assert read.is_contiguous()


def test_rows_of_other_ranks_are_not_read(tmp_path: Path) -> None:
    """Garbage where they lie changes nothing."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf", kind=GGMLQuantizationType.Q8_0)
    checkpoint = open_checkpoint(path)
    share = deal(checkpoint.config, 2)[1]
    name = "model.layers.0.mlp.gate_proj.weight"
    stored = next(stored for stored in checkpoint.index if stored.name == name)

    def read() -> torch.Tensor:
        return dict(checkpoint.tensors(lambda name: piece_of(name, checkpoint.config, share)))[name]

    before = read()
    with path.open("r+b") as file:
        file.seek(stored.offset)
        file.write(b"\x7f" * (stored.size_bytes // 2))
    assert torch.equal(read(), before)
