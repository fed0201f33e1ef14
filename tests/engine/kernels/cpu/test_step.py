"""The C++ step against torch, on random models of every architecture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.kernels.cpu.step import CpuStep
from engine.model.checkpoint import open_checkpoint
from engine.model.decoder import ForwardPass
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun
from tests.engine.model.random_checkpoint import MODELS, saved

LENGTHS = (1, 15, 16, 17, 31, 32, 33, 64, 65)
"""Around the borders of pages (16) and of the kernel's own spans (32)."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, where a test does not say otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def compiled(folder: Path) -> ForwardPass:
    """Return the model for the C++ step, never torch's."""
    model = load_model(open_checkpoint(folder), "bfloat16", cpu_step="auto")
    assert isinstance(model, CpuStep)
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ForwardPass:
    """Qwen3: it has all that the others have, but for the bias."""
    return compiled(saved("qwen3", tmp_path_factory.mktemp("model")))


def tokens(count: int, seed: int = 3) -> list[int]:
    """Return random token ids."""
    return torch.randint(0, 101, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def scored(model: ForwardPass, dtype: str) -> Tensor:
    """Return the logits of 75 positions: a prompt in chunks over two sequences' pages, then single tokens."""
    run = PagedRun(model, dtype, tokens=256)
    other, number = run.open(), run.open()
    run.prompt(other, tokens(40, seed=4), chunk=40)
    ids = tokens(75)
    head = run.prompt(number, ids[:72], chunk=25)
    return torch.cat([head, *(run.step([(number, [token])]) for token in ids[72:])])


@pytest.mark.parametrize("name", MODELS)
def test_its_error_is_no_larger_than_that_of_torch(name: str, tmp_path: Path) -> None:
    """Against float32, root mean square over all logits; these spread by more than 2."""
    folder = saved(name, tmp_path)
    exact = scored(load_model(open_checkpoint(folder), "float32"), "float32")
    torch_error = scored(load_model(open_checkpoint(folder), "bfloat16"), "bfloat16") - exact
    error = scored(compiled(folder), "bfloat16") - exact
    assert exact.std() > 1.5
    assert error.square().mean() <= 1.1 * torch_error.square().mean()


@pytest.mark.parametrize("page_size", [1, 16, 48])
def test_batch_mates_change_no_bit(model: ForwardPass, page_size: int) -> None:
    """Sequences of many lengths, decoded together, have the logits that each has alone on other pages."""
    together = PagedRun(model, "bfloat16", tokens=1024, page_size=page_size)
    numbers = [together.open() for _ in LENGTHS]
    for number, length in zip(numbers, LENGTHS, strict=True):
        together.prompt(number, tokens(length, seed=length), chunk=128)
    work = [(number, tokens(1, seed=number)) for number in numbers]
    found = together.step(work)
    for (number, new), length, logits in zip(work, LENGTHS, found, strict=True):
        alone = PagedRun(model, "bfloat16", tokens=128)
        only = alone.open()
        alone.prompt(only, tokens(length, seed=length), chunk=128)
        assert torch.equal(alone.step([(only, new)])[0], logits), f"sequence {number} of {length} tokens"


@pytest.mark.parametrize("chunk", [1, 7, 16, 40])
def test_chunks_change_no_bit(model: ForwardPass, chunk: int) -> None:
    """A prompt of 100 tokens has the logits of one pass, however it is cut."""
    ids = tokens(100)
    whole, cut = (PagedRun(model, "bfloat16", tokens=128) for _ in range(2))
    assert torch.equal(whole.prompt(whole.open(), ids, chunk=100), cut.prompt(cut.open(), ids, chunk))


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_change_no_bit(model: ForwardPass, threads: int) -> None:
    """More threads than cores, or than some phases have work."""
    alone = scored(model, "bfloat16")
    torch.set_num_threads(threads)
    assert torch.equal(scored(model, "bfloat16"), alone)


def test_it_writes_its_slots_and_no_others(model: ForwardPass) -> None:
    """Every new token's keys and values in all layers and heads, and nothing anywhere else."""
    run = PagedRun(model, "bfloat16", tokens=64)
    number = run.open()
    run.prompt(number, tokens(20), chunk=32)
    written = run.kv.abs().amax(dim=(0, 1, 2, 5)) > 0
    everywhere = run.kv.abs().amax(dim=-1).amin(dim=(0, 1, 2)) > 0
    assert written.sum() == 20
    assert torch.equal(written, everywhere)


def test_a_broken_number_spoils_its_own_sequence_only(model: ForwardPass) -> None:
    """NaN in one sequence's pages reaches its logits, so that the loop can end it, and not its neighbour's."""
    run = PagedRun(model, "bfloat16", tokens=128)
    healthy, broken = run.open(), run.open()
    run.prompt(healthy, tokens(20), chunk=32)
    run.prompt(broken, tokens(20, seed=5), chunk=32)
    before = run.kv.clone()
    expected = run.step([(healthy, [7]), (broken, [9])])[0]
    run.kv.copy_(before)
    run.kv[1, 0, 0, run.pages(broken)[1]] = torch.nan
    run.rewind(healthy, 20)
    run.rewind(broken, 20)
    found = run.step([(healthy, [7]), (broken, [9])])
    assert torch.equal(found[0], expected)
    assert not found[1].isfinite().any()
