"""Opening checkpoints: equal from both formats, and one clear error for each way they can be broken."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from safetensors.numpy import save_file

from engine.errors import CheckpointError
from engine.model.checkpoint import open_checkpoint
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_model import weights, write_tiny_model

Q4_1 = GGMLQuantizationType.Q4_1


def test_directory_and_gguf_are_the_same_model(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Configuration and every tensor agree bit for bit; llama.cpp's order of rows is undone."""
    directory = open_checkpoint(tiny_model_dir)
    gguf = open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf"))
    # The directory's generation_config names a second end token.
    assert gguf.config.eos_ids == (2,)
    assert {**vars_of(gguf), "eos_ids": (2, 0)} == vars_of(directory)
    expected, found = dict(directory.tensors()), dict(gguf.tensors())
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def vars_of(checkpoint: object) -> dict[str, object]:
    """Return the configuration as a dict."""
    config = checkpoint.config  # type: ignore[attr-defined]
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def test_quantised_tensors_are_dequantised(tmp_path: Path) -> None:
    """A Q4_1 matrix comes back as its blocks say, not as it was before."""
    original = weights()["model.layers.1.mlp.up_proj.weight"]
    found = dict(open_checkpoint(write_tiny_gguf(tmp_path / "q.gguf", kind=Q4_1)).tensors())
    tensor = found["model.layers.1.mlp.up_proj.weight"].numpy()
    assert np.array_equal(tensor, dequantize(quantize(original, Q4_1), Q4_1))
    assert 0 < np.abs(tensor - original).max() < 0.1


def test_qwen2_gguf_keeps_the_order_of_rows(tmp_path: Path) -> None:
    """llama.cpp reorders queries and keys for Llama only."""
    tensors = weights()
    for layer in range(2):
        for part, rows in (("q", 32), ("k", 16), ("v", 16)):
            bias = np.arange(rows, dtype=np.float32)
            tensors[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = bias
    path = write_tiny_gguf(tmp_path / "q.gguf", architecture="qwen2", tensors=tensors)
    found = dict(open_checkpoint(path).tensors())
    for name in ("q_proj.weight", "k_proj.weight", "q_proj.bias"):
        name = f"model.layers.0.self_attn.{name}"
        assert np.array_equal(found[name].numpy(), tensors[name])


def test_a_qwen2_without_biases_is_refused(tmp_path: Path) -> None:
    """It would compute something, but not the model."""
    with pytest.raises(CheckpointError, match=r"q_proj.bias is missing"):
        open_checkpoint(write_tiny_gguf(tmp_path / "q.gguf", architecture="qwen2"))


def test_opening_needs_no_torch(tiny_model_dir: Path) -> None:
    """The API process opens checkpoints and must stay small."""
    code = (
        "import sys; from engine.model.checkpoint import open_checkpoint; "
        f"open_checkpoint({str(tiny_model_dir)!r}).fingerprint(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    """Copies agree; another seed, or another end token, does not."""
    first = open_checkpoint(write_tiny_model(tmp_path / "a")).fingerprint()
    assert first == open_checkpoint(write_tiny_model(tmp_path / "b")).fingerprint()
    assert first != open_checkpoint(write_tiny_model(tmp_path / "c", seed=1)).fingerprint()
    changed = write_tiny_model(tmp_path / "d")
    edit_config(changed, eos_token_id=5)
    assert first != open_checkpoint(changed).fingerprint()


@pytest.mark.parametrize("position", [0.0, 0.5, 1.0])
def test_fingerprint_samples_all_of_a_large_tensor(tmp_path: Path, position: float) -> None:
    """A changed run of 80 kB at the start, middle or end of a 1.2 MB matrix is seen."""
    folder = write_tiny_model(tmp_path / "a")
    tensors = weights() | {"model.embed_tokens.weight": np.zeros((9600, 32), np.float32)}
    tensors["lm_head.weight"] = np.zeros((9600, 32), np.float32)
    edit_config(folder, vocab_size=9600)
    save_file(tensors, folder / "model.safetensors")
    before = open_checkpoint(folder).fingerprint()
    flat = tensors["lm_head.weight"].reshape(-1)
    start = int(position * (flat.size - 20_000))
    flat[start : start + 20_000] = 1
    save_file(tensors, folder / "model.safetensors")
    assert open_checkpoint(folder).fingerprint() != before


def test_a_tied_copy_of_the_head_is_ignored(tmp_path: Path) -> None:
    """Some exporters write the tied matrix twice."""
    folder = write_tiny_model(tmp_path / "a")
    edit_config(folder, tie_word_embeddings=True)
    assert "lm_head.weight" not in dict(open_checkpoint(folder).tensors())


def edit_config(folder: Path, **changes: object) -> None:
    """Change keys of config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def truncate(file: Path, keep: float) -> None:
    """Cut a file to a part of its size."""
    raw = file.read_bytes()
    file.write_bytes(raw[: int(len(raw) * keep)])


def without(folder: Path, name: str) -> None:
    """Write the weights without one tensor."""
    tensors = weights()
    del tensors[name]
    save_file(tensors, folder / "model.safetensors")


def with_extra(folder: Path) -> None:
    """Write the weights with a tensor that a Llama does not have."""
    bias = {"model.layers.0.self_attn.q_proj.bias": np.zeros(32, np.float32)}
    save_file(weights() | bias, folder / "model.safetensors")


BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json does not exist"),
    "config no JSON": (
        lambda folder: (folder / "config.json").write_text("{"),
        "config.json is no valid JSON",
    ),
    "config a list": (lambda folder: (folder / "config.json").write_text("[]"), "no JSON object"),
    "config binary": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "no valid JSON"),
    "architecture": (
        lambda folder: edit_config(folder, model_type="gpt_neox"),
        "'gpt_neox' is not supported",
    ),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"no \*.safetensors"),
    "empty weights": (lambda folder: (folder / "model.safetensors").write_bytes(b""), "truncated"),
    "cut header": (lambda folder: truncate(folder / "model.safetensors", 0.005), "truncated"),
    "cut data": (
        lambda folder: truncate(folder / "model.safetensors", 0.9),
        "truncated: tensor .* ends at byte",
    ),
    "header noise": (
        lambda folder: (folder / "model.safetensors").write_bytes((8).to_bytes(8, "little") + b"[1, 2,3]"),
        "header of model.safetensors is corrupt",
    ),
    "missing tensor": (lambda folder: without(folder, "model.norm.weight"), "model.norm.weight is missing"),
    "extra tensor": (with_extra, "q_proj.bias is not part of a llama model"),
    "wrong shape": (
        lambda folder: edit_config(folder, intermediate_size=63),
        "has shape .64, 32., .* says .63, 32.",
    ),
    "bad index": (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "weight_map"),
    "shard missing": (
        lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}'),
        "b.safetensors does not exist",
    ),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_directory_is_one_clear_error(name: str, tmp_path: Path) -> None:
    """The message has the model's path and what is wrong."""
    folder = write_tiny_model(tmp_path / "model")
    spoil, word = BREAKAGES[name]
    spoil(folder)
    with pytest.raises(CheckpointError, match=word) as caught:
        open_checkpoint(folder)
    assert str(folder) in str(caught.value)


GGUF_BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "no model at .* does not exist"),
    "empty": (lambda file: file.write_bytes(b""), "empty"),
    "not a GGUF": (lambda file: file.write_bytes(b"<html>" * 9), "not a GGUF"),
    "cut header": (lambda file: truncate(file, 0.02), "truncated"),
    "cut data": (lambda file: truncate(file, 0.9), "truncated"),
    "architecture": (lambda file: write_tiny_gguf(file, "gemma"), "'gemma' is not supported"),
    "number type": (
        lambda file: write_tiny_gguf(file, tensors=weights() | {"model.norm.weight": np.zeros((2, 2), np.float32)}),
        "model.norm.weight has shape .2, 2.",
    ),
}


@pytest.mark.parametrize("name", GGUF_BREAKAGES)
def test_a_broken_gguf_is_one_clear_error(name: str, tmp_path: Path) -> None:
    """The message has the model's path and what is wrong."""
    file = write_tiny_gguf(tmp_path / "model.gguf")
    spoil, word = GGUF_BREAKAGES[name]
    spoil(file)
    with pytest.raises(CheckpointError, match=word) as caught:
        open_checkpoint(file)
    assert str(file) in str(caught.value)


def test_a_file_that_shrinks_after_opening_is_an_error(tmp_path: Path) -> None:
    """Not half a model, nor a hang."""
    folder = Path(shutil.copytree(write_tiny_model(tmp_path / "a"), tmp_path / "b"))
    checkpoint = open_checkpoint(folder)
    truncate(folder / "model.safetensors", 0.5)
    with pytest.raises(CheckpointError, match="was it changed"):
        list(checkpoint.tensors())
