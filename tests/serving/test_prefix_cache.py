"""The prefix cache in real engines: the same tokens, less computed, less read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.rig import Pair, Process, engine, pair, running, until

PAGE = 16
PAGE_BYTES = 2 * 2 * 2 * PAGE * 8 * 8
"""Layers, K and V, KV heads, slots, dim, float64."""


@pytest.fixture(scope="module")
def cached(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair with the cache, in float64; 1,024 tokens of KV a side."""
    with pair(tiny_model_dir, tmp_path_factory.mktemp("cached"), "--dtype", "float64", "--kv-tokens", "1024") as both:
        yield both


@pytest.fixture(scope="module")
def plain(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A unified engine without the cache."""
    folder = tmp_path_factory.mktemp("plain")
    process = engine("unified", tiny_model_dir, folder, "--dtype", "float64", "--no-prefix-cache")
    with running(process):
        yield process


def body(ids: list[int], rid: str = "", max_tokens: int = 12, **knobs: object) -> dict[str, Any]:
    """Return a /generate request, greedy unless told otherwise."""
    sampling = {"max_new_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **knobs}
    return {"input_ids": ids, "sampling_params": sampling, **({"rid": rid} if rid else {})}


def prompt(seed: int, tokens: int) -> list[int]:
    """Return a random prompt without special tokens."""
    chance = random.Random(seed)
    return [chance.randrange(3, 250) for _ in range(tokens)]


def record(side: Process, rid: str) -> dict[str, Any]:
    """Return the ended room of a request."""
    (found,) = [room for room in side.get("/rooms/recent")["rooms"] if room["request_id"] == rid]
    return found


def metric(side: Process, name: str) -> float:
    """Return a metric without labels."""
    lines = httpx.get(side.url + "/metrics", timeout=10).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split(" ")[0] == f"pdengine_{name}")


def test_the_second_request_reads_only_what_decode_lacks(cached: Pair) -> None:
    """100 tokens: seven pages the first time, then the last one; prefill says 96 cached tokens; the same answer."""
    ids = prompt(1, 100)
    first = cached.post("/generate", body(ids, "first"))[1].json()
    second = cached.post("/generate", body(ids, "second"))[1].json()
    assert record(cached.decode, "first")["kv_bytes"] == 7 * PAGE_BYTES
    assert record(cached.decode, "second")["kv_bytes"] == PAGE_BYTES
    assert (first["meta_info"]["cached_tokens"], second["meta_info"]["cached_tokens"]) == (0, 96)
    assert record(cached.decode, "second")["cached_tokens"] == 96
    assert first["output_ids"] == second["output_ids"]


def test_the_metrics_count_hits_on_both_sides(cached: Pair) -> None:
    """Of the 200 tokens of two requests 96 are found, on prefill and on decode."""
    before = [(metric(side, "prefix_cache_asked_tokens_total"), metric(side, "prefix_cache_hit_tokens_total"))
              for side in (cached.prefill, cached.decode)]  # fmt: skip
    ids = prompt(2, 100)
    for _ in range(2):
        cached.post("/generate", body(ids))
    for (asked, hit), side in zip(before, (cached.prefill, cached.decode), strict=True):
        assert metric(side, "prefix_cache_asked_tokens_total") - asked == 200
        assert metric(side, "prefix_cache_hit_tokens_total") - hit == 96


def test_the_next_turn_finds_the_answer_on_decode_and_not_on_prefill(cached: Pair) -> None:
    """60 + 40 tokens, then 10 more: decode has 96 of them (the last was never computed), prefill the prompt's 48."""
    ids = prompt(3, 60)
    answer = cached.post("/generate", body(ids, max_tokens=40))[1].json()["output_ids"]
    turn = cached.post("/generate", body([*ids, *answer, *prompt(4, 10)], "turn"))[1].json()
    assert turn["meta_info"]["cached_tokens"] == 48
    assert record(cached.decode, "turn")["cached_tokens"] == 96
    assert record(cached.decode, "turn")["kv_bytes"] == PAGE_BYTES


def test_choices_share_their_prompt(cached: Pair) -> None:
    """n = 4 of 100 tokens: prefill computes 100 + 3 x 4, decode reads 7 + 3 pages; usage counts none as cached."""
    before = metric(cached.prefill, "prompt_tokens_total")
    asked = {"model": "test", "prompt": prompt(5, 100), "n": 4, "max_tokens": 8, "temperature": 1, "seed": 3}
    answers = cached.post("/v1/completions", asked)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert metric(cached.prefill, "prompt_tokens_total") - before == 100 + 3 * 4
    rooms = [r for r in cached.decode.get("/rooms/recent")["rooms"] if r["prompt_tokens"] == 100]
    sizes = sorted(room["kv_bytes"] // PAGE_BYTES for room in rooms[-4:])
    assert sizes == [1, 1, 1, 7]
    usage = answers[1].json()["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (100, 0)
    assert len({choice["text"] for choice in answers[1].json()["choices"]}) > 1


def mixes(count: int) -> list[dict[str, Any]]:
    """Return requests with shared beginnings, greedy and random, prompts of 1 to 260 tokens, answers of 1 to 60."""
    chance = random.Random(count)
    found = []
    for at in range(count):
        ids = prompt(chance.randrange(3), 260)[: chance.randint(1, 260)] + prompt(100 + at, chance.choice((0, 0, 7)))
        temperature = chance.choice((0, 1.0))
        found.append(body(ids, max_tokens=chance.randint(1, 60), temperature=temperature, seed=at))
    return found


def test_mixes_say_the_same_with_the_cache_and_without(cached: Pair, plain: Process) -> None:
    """40 requests, 8 at once, through a pair whose pools must evict: token for token what an engine without says."""
    asked = mixes(40)
    alone = [plain.post("/generate", each).json()["output_ids"] for each in asked]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: cached.post("/generate", each), asked))
    assert [decode.json()["output_ids"] for _, decode in answers] == alone
    assert metric(cached.decode, "prefix_cache_hit_tokens_total") > 1000
    assert metric(cached.decode, "prefix_cache_evicted_pages_total") > 0
    until(cached.is_idle, 5, "free + cached = total on both sides")
    assert cached.decode.get("/ledger")["cached"] > 0


def test_a_score_is_the_same_with_a_warm_cache(cached: Pair, plain: Process) -> None:
    """Prompt logprobs from position 50 on, of a prompt that prefill has in its cache."""
    ids = prompt(6, 100)
    cached.post("/generate", body(ids))
    scoring = {"input_ids": ids, "sampling_params": {"max_new_tokens": 0}, "return_logprob": True}
    scoring["logprob_start_len"] = 50
    warm, cold = (side.post("/generate", scoring).json()["meta_info"] for side in (cached.prefill, plain))
    assert warm["cached_tokens"] == 48
    told = [[entry[0] for entry in meta["input_token_logprobs"]] for meta in (warm, cold)]
    assert len(told[0]) == 50
    assert told[0] == pytest.approx(told[1], abs=1e-9)
