"""Where a rank computes.

No GPU is here, so torch's `meta` stands for it: its tensors have type, shape and place and no numbers, and most
operations refuse them together with tensors of the host, as they would a GPU's.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from engine.clock import SystemClock
from engine.errors import ConfigError
from engine.kernels.device import CPU, computing_on, rank_device
from engine.kvcache.pool import KVPool
from engine.messages import SamplingParams
from engine.model.batch import ForwardBatch
from engine.model.checkpoint import open_checkpoint
from engine.model.decoder import ForwardPass
from engine.model.grammar import GrammarCompiler
from engine.model.loading import load_model
from engine.model.sampling_state import SamplingState
from engine.scheduler import runner as runner_module
from engine.scheduler.rank import kv_layout, load_rank
from engine.scheduler.runner import Runner
from engine.scheduler.step_plan import SequenceStep, StepPlan
from tests.engine.scheduler.building import Role, config

ELSEWHERE = torch.device("meta")


class Watched(ForwardPass):
    """A model that keeps what it was given last, and its logits."""

    batch: ForwardBatch
    logits: torch.Tensor

    def __init__(self, model: ForwardPass) -> None:
        self.config, self.share = model.config, model.share
        self._model = model

    def forward(self, batch: ForwardBatch, kv: torch.Tensor) -> torch.Tensor:
        self.batch, self.logits = batch, self._model.forward(batch, kv)
        return self.logits


@pytest.mark.parametrize("pages", [[[3, 1], [5, 6]], [[3, 4], [5, 6]]], ids=["scattered", "neighbours"])
def test_a_step_mixes_nothing_of_the_host_into_what_lies_elsewhere(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch, pages: list[list[int]]
) -> None:
    """A decode and a chunk that follows a chunk, by torch's attention; logits come out where the model is."""
    monkeypatch.setattr(runner_module, "computing_on", lambda device: nullcontext())
    checkpoint = open_checkpoint(str(tiny_model_dir))
    layout = kv_layout(config(Role.UNIFIED, dtype="float32"), checkpoint.config, checkpoint.config.kv_heads)
    model = Watched(load_model(checkpoint, "float32", ELSEWHERE))
    # Rank 1: numbers to sample from are not there.
    made = Runner(model, KVPool(layout, ELSEWHERE), (2,), GrammarCompiler(lambda: None), rank=1)  # type: ignore[arg-type, return-value]
    decode = SequenceStep("a", 6, [20], pages[0], True)
    chunk = SequenceStep("b", 2, [10, 11, 12, 13], pages[1], True)
    made.step(StepPlan(1, 1, [decode, chunk], []))
    assert (model.logits.device, model.logits.shape) == (ELSEWHERE, (2, checkpoint.config.vocab))
    batch = model.batch
    assert {each.device for each in (batch.token_ids, batch.positions, batch.slots, batch.logit_rows)} == {ELSEWHERE}


def test_what_a_request_asks_for_is_applied_where_its_logits_are() -> None:
    """Penalties, bias and barred ends."""
    params = SamplingParams(max_tokens=8, min_tokens=4, logit_bias={3: 1.0}, presence_penalty=0.5)
    state = SamplingState(params, [1, 2], (2,))
    assert state.adjust(torch.zeros(16, device=ELSEWHERE)).device == ELSEWHERE


def test_a_cpu_needs_nothing() -> None:
    """Neither a number nor waiting."""
    assert rank_device("cpu", 3) == CPU
    with computing_on(CPU):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_not_there_is_told() -> None:
    """Before a model is loaded; with what to do."""
    with pytest.raises(ConfigError, match=r"rank 1 needs GPU 1, and torch .* sees 0; leave the flag away"):
        rank_device("cuda", 1)


def test_a_pool_that_does_not_fit_is_told(tiny_model_dir: Path) -> None:
    """Before requests write to it: a host gives memory only when it is written, and ends the process then."""
    config_ = config(Role.UNIFIED, model=str(tiny_model_dir), kv_tokens=1 << 40)
    with pytest.raises(ConfigError, match=r"--kv-tokens: a pool of 1099511627776 tokens takes .* GB, and this machine"):
        load_rank(config_, 0, "", SystemClock())
