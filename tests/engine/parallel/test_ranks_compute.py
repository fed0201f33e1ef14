"""A model dealt to several processes computes what it computes in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.model.checkpoint import open_checkpoint
from engine.model.decoder import ForwardPass
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun
from tests.engine.model.random_checkpoint import saved
from tests.engine.parallel.rank_processes import RankProcesses, forced, matrices, tensor_bytes

CHUNK = 19
MODELS = ("llama", "llama-uneven", "llama-tied", "qwen2", "qwen3")


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankProcesses]:
    made = RankProcesses(request.param, tmp_path_factory.mktemp("ranks") / "meeting")
    yield made
    made.end()


def prompts_of(vocab: int) -> list[list[int]]:
    chance = torch.Generator().manual_seed(5)
    return [torch.randint(0, vocab, (length,), generator=chance).tolist() for length in (45, 16, 3)]


def greedy(model: ForwardPass, dtype: str, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    return PagedRun(model, dtype, tokens=512).greedy(prompts, tokens, CHUNK)


def chosen(logits: torch.Tensor, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Return the best token at each place of `forced` where `greedy` chose one."""
    lengths = [len(prompt) for prompt in prompts]
    rows = [sum(lengths[: number + 1]) - 1 for number in range(len(prompts))]
    steps = [sum(lengths) + len(prompts) * step for step in range(tokens - 1)]
    best = logits.argmax(-1).tolist()
    return [[best[row], *(best[step + number] for step in steps)] for number, row in enumerate(rows)]


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_tokens_are_those_of_one_rank(ranks: RankProcesses, name: str, tmp_path: Path) -> None:
    """In float64 to 1e-9, for prompts in chunks and batched decoding, heads dealt unevenly or held twice."""
    folder = saved(name, tmp_path)
    whole = load_model(open_checkpoint(folder), "float64")
    prompts = prompts_of(101)
    outputs = greedy(whole, "float64", prompts, tokens=12)
    expected = forced(PagedRun(whole, "float64", tokens=512), prompts, outputs, CHUNK)
    ranks.call("load", folder, "float64")
    logits = ranks.call("forced", prompts, outputs, CHUNK)
    torch.testing.assert_close(logits[0], expected, atol=1e-9, rtol=0)
    assert chosen(logits[0], prompts, 12) == outputs
    assert all(part.shape == (len(expected), 0) for part in logits[1:])


def test_each_rank_holds_its_part_only(ranks: RankProcesses, tmp_path: Path) -> None:
    """Together the ranks hold the matrices once, but for KV heads that are held twice."""
    folder = saved("llama", tmp_path)
    whole = load_model(open_checkpoint(folder), "float32")
    held = ranks.call("load", folder, "float32")
    config = whole.config
    kv_heads_held = sum(len(heads) for heads, _ in held)
    row = 4 * config.head_dim * config.hidden
    twice = 2 * config.layers * (kv_heads_held - config.kv_heads) * row
    assert sum(size for _, size in held) == sum(tensor_bytes(part) for part in matrices(whole)) + twice


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_smollm2_on_two_ranks_says_what_it_says_on_one(ranks: RankProcesses, smollm2_path: Path) -> None:
    """float32, dequantised 4-bit blocks, 6 + 3 heads: greedy tokens of three prompts."""
    checkpoint = open_checkpoint(smollm2_path)
    whole = load_model(checkpoint, "float32")
    prompts = prompts_of(checkpoint.config.vocab)
    outputs = greedy(whole, "float32", prompts, tokens=16)
    ranks.call("load", smollm2_path, "float32")
    logits = ranks.call("forced", prompts, outputs, CHUNK)[0]
    assert chosen(logits, prompts, 16) == outputs
