"""One real engine as `unified`, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving.rig import Process, engine, running


@pytest.fixture(scope="module")
def unified(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A unified engine with the tiny model in float64."""
    process = engine("unified", tiny_model_dir, tmp_path_factory.mktemp("unified"), "--dtype", "float64")
    with running(process):
        yield process


def completion(process: Process, prompt: str, **body: object) -> str:
    """Return the text of a greedy completion."""
    answer = process.post("/v1/completions", {"model": "test", "prompt": prompt, "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_many_at_once_get_the_text_of_their_solo_runs(unified: Process) -> None:
    """Continuous batching changes nothing: 16 prompts of 1 to 300 tokens, alone and together."""
    prompts = ["the hello " * count for count in (1, 2, 3, 5, 8, 13, 21, 34, 4, 6, 9, 30, 17, 11, 7, 2)]
    alone = [completion(unified, prompt, max_tokens=24) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(lambda prompt: completion(unified, prompt, max_tokens=24), prompts))
    assert together == alone


def test_a_seed_gives_the_same_text_in_any_company(unified: Process) -> None:
    """Random numbers are a function of (seed, position) only."""
    alone = completion(unified, "hello", max_tokens=24, temperature=1, seed=7)
    with ThreadPoolExecutor(8) as pool:
        texts = list(
            pool.map(lambda seed: completion(unified, "hello", max_tokens=24, temperature=1, seed=seed), range(8))
        )
    assert texts[7] == alone
    assert len(set(texts)) > 1


def test_a_score_agrees_with_the_logprobs_of_generation(unified: Process) -> None:
    """Prompt + answer scored in one pass gives each answer token the logprob it was generated with."""
    generated = unified.post(
        "/generate",
        {"text": "hello the", "sampling_params": {"max_new_tokens": 12, "temperature": 0}, "return_logprob": True},
    ).json()
    prompt_ids = unified.post("/tokenize", {"prompt": "hello the"}).json()["tokens"]
    scored = unified.post(
        "/generate",
        {
            "input_ids": prompt_ids + generated["output_ids"],
            "sampling_params": {"max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": len(prompt_ids),
        },
    ).json()
    told = [entry[0] for entry in generated["meta_info"]["output_token_logprobs"]]
    again = [entry[0] for entry in scored["meta_info"]["input_token_logprobs"]]
    assert again == pytest.approx(told, abs=1e-6)
    assert scored["output_ids"] == []
