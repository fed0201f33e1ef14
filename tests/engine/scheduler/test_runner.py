"""A rank computes what its plans say and nothing else: the real model in float64."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.kvcache.pool import KVPool
from engine.messages import SamplingParams
from engine.model.checkpoint import open_checkpoint
from engine.model.grammar import GrammarCompiler
from engine.model.loading import load_model
from engine.scheduler.rank import kv_layout
from engine.scheduler.runner import Runner
from engine.scheduler.step_plan import COMING, SamplingStart, SequenceStep, StepGap, StepPlan
from tests.engine.scheduler.building import Role, config

PROMPT = [10, 11, 12, 13, 14, 15]
GREEDY = SamplingParams(max_tokens=8, temperature=0.0)


def runner(model: Path, rank: int = 0) -> Runner:
    """Return a runner with a pool of 16 pages of 4 tokens."""
    checkpoint = open_checkpoint(str(model))
    layout = kv_layout(config(Role.UNIFIED, dtype="float64"), checkpoint.config, checkpoint.config.kv_heads)
    return Runner(load_model(checkpoint, "float64"), KVPool(layout), (2,), GrammarCompiler(lambda: None), rank)  # type: ignore[arg-type, return-value]


def prompt(number: int = 1, rid: str = "a", ended: tuple[str, ...] = ()) -> StepPlan:
    """Return a plan that computes the whole prompt and samples."""
    start = SamplingStart(GREEDY, PROMPT, [])
    return StepPlan(number, 0, [SequenceStep(rid, 0, PROMPT, [3, 1], True, None, start)], list(ended))


def decode(number: int, start: int, token: int) -> StepPlan:
    """Return a plan that computes one more token."""
    return StepPlan(number, 1, [SequenceStep("a", start, [token], [3, 1, 7], True)], [])


def test_a_coming_token_is_the_one_that_was_sampled(tiny_model_dir: Path) -> None:
    """The next plan was made without knowing it, and gives what a plan with the token gives."""
    one, other = runner(tiny_model_dir), runner(tiny_model_dir)
    first = one.step(prompt()).sampled["a"].token_id
    assert other.step(prompt()).sampled["a"].token_id == first
    completed = one.completed(decode(2, 6, COMING))
    assert completed == decode(2, 6, first)
    assert one.step(completed) == other.step(decode(2, 6, first))


@pytest.mark.parametrize("number", [1, 3])
def test_a_gap_in_the_numbers_stops_the_rank(tiny_model_dir: Path, number: int) -> None:
    """A plan that came twice or was lost."""
    made = runner(tiny_model_dir)
    made.step(prompt())
    with pytest.raises(StepGap, match=f"plan {number} came where plan 2 was due"):
        made.step(decode(number, 6, 20))


def test_other_ranks_compute_and_sample_nothing(tiny_model_dir: Path) -> None:
    """The same KV, no token."""
    leading, other = runner(tiny_model_dir), runner(tiny_model_dir, rank=1)
    leading.step(prompt())
    assert other.step(prompt()).sampled == {}
    assert (leading._pool.tensor == other._pool.tensor).all()
    assert leading._pool.tensor[:, :, :, 3].any()


def test_ended_sequences_are_forgotten(tiny_model_dir: Path) -> None:
    """Their sampling states go with the first plan that names them."""
    made = runner(tiny_model_dir)
    made.step(prompt())
    made.step(prompt(2, "b", ended=("a",)))
    assert set(made._states) == {"b"}
