"""One real engine as `unified`, over HTTP."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.serving.rig import Process, engine, is_idle, running
from tests.streams import events, raw_post
from tests.waiting import eventually

GREEDY: dict[str, Any] = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}


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


def test_stream_and_whole_answer_agree(unified: Process) -> None:
    """The same greedy request gives the same ids and text, streamed or not."""
    request = {"text": "hello the world", "sampling_params": GREEDY}
    whole = unified.post("/generate", request).json()
    streamed = events(unified.post("/generate", request | {"stream": True}))[-2]
    assert len(whole["output_ids"]) == 12
    assert (streamed["output_ids"], streamed["text"]) == (whole["output_ids"], whole["text"])


def test_greedy_tokens_are_the_best_of_their_score(unified: Process) -> None:
    """Scored in one pass, each greedy token is the likeliest at its place."""
    prompt = unified.post("/tokenize", {"prompt": "hello the"}).json()["tokens"]
    answer = unified.post("/generate", {"input_ids": prompt, "sampling_params": GREEDY}).json()["output_ids"]
    score = {
        "input_ids": prompt + answer, "sampling_params": {"max_new_tokens": 0}, "return_logprob": True,
        "logprob_start_len": len(prompt), "top_logprobs_num": 1,
    }  # fmt: skip
    meta = unified.post("/generate", score).json()["meta_info"]
    assert [top[0][1] for top in meta["input_top_logprobs"]] == answer


def test_choices_of_one_seed_differ_and_repeat(unified: Process) -> None:
    """n = 2 with a seed: two answers, the same two again."""
    request = {"model": "test", "prompt": "hello", "max_tokens": 24, "seed": 11, "n": 2, "ignore_eos": True}
    first, second = (unified.post("/v1/completions", request).json()["choices"] for _ in range(2))
    assert [choice["text"] for choice in first] == [choice["text"] for choice in second]
    assert first[0]["text"] != first[1]["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_free_their_pages(unified: Process, stream: bool) -> None:
    """50 clients that vanish in the middle leave no request and no page behind."""
    request = {"text": "hello", "sampling_params": GREEDY | {"max_new_tokens": 3000}, "stream": stream}
    with contextlib.ExitStack() as stack:
        for number in range(50):
            stack.enter_context(raw_post(unified.port, "/generate", request, f"gone-{stream}-{number}"))
        eventually(lambda: len(unified.get("/rooms")["rooms"]) == 50)
    eventually(lambda: is_idle(unified))
    recent = unified.get("/rooms/recent")["rooms"]
    reasons = {room["reason"] for room in recent if room["request_id"].startswith(f"gone-{stream}")}
    assert reasons == {"client disconnected"}


def test_scheduler_dies_with_the_api_process(tiny_model_dir: Path, tmp_path: Path) -> None:
    """kill -9 of the API process leaves no scheduler behind."""
    process = engine("unified", tiny_model_dir, tmp_path)
    with running(process):
        scheduler = psutil.Process(process.get("/server_info")["scheduler_pid"])
        os.kill(process.pid, signal.SIGKILL)
        scheduler.wait(2)


def test_corrupt_model_is_one_message(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Weights that only the scheduler reads and finds cut short: exit 2, the file named, no traceback."""
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model_dir, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    process = engine("unified", broken, tmp_path).start()
    assert process.child is not None
    try:
        assert process.child.wait(60) == 2
    finally:
        process.child.kill()
    assert "model.safetensors" in process.log_tail()
    assert "Traceback" not in process.log_tail()
