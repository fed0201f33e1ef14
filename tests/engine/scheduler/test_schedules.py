"""Overlap and normal give the same tokens: the real model in float64, real sampling, the real step thread."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import llguidance
import pytest

from engine.config import Schedule
from engine.messages import Abort, Generate, SamplingParams
from tests.engine.scheduler.real_steps import real_loop

GRAMMAR = llguidance.LLMatcher.grammar_from_json_schema('{"type": "array", "items": {"type": "boolean"}}')
KINDS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.2, "frequency_penalty": 0.3},
    {"temperature": 1.0, "grammar": GRAMMAR},
    {"temperature": 0.0, "stop_token_ids": tuple(range(40, 100))},
    {"temperature": 1.0, "min_tokens": 6, "logprobs": True, "top_logprobs": 2},
    {"temperature": 0.0, "prompt_logprobs": 1},
)


def mixed(count: int, seed: int) -> list[Generate]:
    """Return requests of every kind; half of them share their beginning with another one."""
    chance = random.Random(seed)
    requests = []
    for at in range(count):
        beginning = [3 + at % 3] * 9
        prompt = beginning + [chance.randrange(3, 264) for _ in range(chance.randrange(1, 30))]
        sampling = SamplingParams(max_tokens=chance.randrange(1, 40), seed=seed + at, **KINDS[at % len(KINDS)])
        requests.append(
            Generate(
                rid=str(at),
                request_id=str(at),
                prompt_ids=prompt,
                sampling=sampling,
                received_at=time.time(),
                deadline_s=600.0,
            )
        )
    return requests


def tokens(model: Path, schedule: Schedule, aborted: dict[int, str]) -> tuple[dict[str, list[int]], int]:
    """Return everybody's tokens, and how often somebody was retracted."""
    requests = mixed(24, seed=5)
    with real_loop(model, schedule, kv_tokens=160, max_running=8, max_queued=64, chunk_tokens=16) as real:
        found = real.run(requests, {after: Abort(rid, "client left") for after, rid in aborted.items()})
        while real.inbox.messages or real.loop._running:
            real.loop.turn()
        ledger = real.book.pages.ledger()
        assert ledger.free + ledger.cached == ledger.total
        return found, real.planner.retractions


def test_both_schedules_give_the_same_tokens(tiny_model_dir: Path) -> None:
    """24 requests of seven kinds in a pool that is too small: retractions, hits, stops, grammars, penalties."""
    normal, retractions = tokens(tiny_model_dir, Schedule.NORMAL, {})
    overlapped, retractions_overlapped = tokens(tiny_model_dir, Schedule.OVERLAP, {})
    assert overlapped == normal
    assert retractions > 0
    assert retractions_overlapped > 0
    assert all(normal.values())


@pytest.mark.parametrize("schedule", Schedule)
def test_aborts_leave_the_others_tokens_alone(tiny_model_dir: Path, schedule: Schedule) -> None:
    """Eight are aborted at different moments: they got a beginning of their tokens, all others everything."""
    whole, _ = tokens(tiny_model_dir, Schedule.NORMAL, {})
    aborted = {after: str(rid) for after, rid in zip(range(3, 200, 25), range(0, 24, 3), strict=True)}
    found, _ = tokens(tiny_model_dir, schedule, aborted)
    for rid, mine in found.items():
        assert mine == (whole[rid][: len(mine)] if rid in aborted.values() else whole[rid])
