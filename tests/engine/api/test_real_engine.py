"""The whole engine, nothing faked: `python -m engine` on a tiny random model, unified and as a pair over NIXL."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.api.instance import WAIT_S, Instance, running, start, stop
from tests.engine.api.test_generate import events
from tests.engine.api.test_streams import raw_post
from tests.ports import free_port
from tests.waiting import eventually

ENGINE = (sys.executable, "-m", "engine")
FLAGS = ("--dtype", "float32", "--kv-tokens", "4096", "--chunk-tokens", "64")
GREEDY: dict[str, Any] = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
ROOMS = itertools.count(1000)


@pytest.fixture(scope="module")
def real(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A unified instance."""
    with running(tiny_model_dir, tmp_path_factory.mktemp("real"), "unified", *FLAGS, command=ENGINE) as instance:
        yield instance


@dataclass(frozen=True)
class Pair:
    """A prefill and a decode; `ask` does what the router does."""

    prefill: Instance
    decode: Instance
    bootstrap_port: int

    def ask(self, path: str, body: dict[str, Any], request_id: str, room: Any = None) -> tuple[Any, Any]:
        """Post the same body to both legs at once; return both responses, prefill's first."""
        rendezvous = {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.bootstrap_port,
            "bootstrap_room": next(ROOMS) if room is None else room,
        }
        with ThreadPoolExecutor(2) as pool:
            legs = [
                pool.submit(instance.post, path, body | rendezvous, request_id)
                for instance in (self.prefill, self.decode)
            ]
            return legs[0].result(), legs[1].result()


@pytest.fixture(scope="module")
def pair(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair that moves KV pages over NIXL."""
    port = free_port()
    with ExitStack() as stack:
        start = lambda role, *flags: stack.enter_context(  # noqa: E731 - a shorthand for two calls
            running(tiny_model_dir, tmp_path_factory.mktemp(role), role, *FLAGS, *flags, command=ENGINE)
        )
        prefill = start("prefill", "--bootstrap-port", str(port))
        yield Pair(prefill, start("decode", "--peers", f"127.0.0.1:{port}"), port)


def is_balanced(instance: Instance) -> bool:
    """Return whether the instance holds no request and no page but cached ones."""
    ledger = instance.http.get("/ledger").json()
    rooms = instance.http.get("/rooms").json()["rooms"]
    return bool(not rooms and ledger["balanced"] and ledger["free"] + ledger["cached"] == ledger["total"])


def test_stream_and_whole_answer_agree(real: Instance) -> None:
    """The same greedy request gives the same ids and text, streamed or not."""
    body = {"text": "hello the world", "sampling_params": GREEDY}
    whole = real.post("/generate", body).json()
    streamed = events(real.post("/generate", body | {"stream": True}))[-2]
    assert len(whole["output_ids"]) == 12
    assert (streamed["output_ids"], streamed["text"]) == (whole["output_ids"], whole["text"])


def test_answer_scores_as_the_models_own_choice(real: Instance) -> None:
    """Scoring prompt + answer in one pass finds each greedy token to be the best at its place."""
    prompt = real.post("/tokenize", {"text": "hello the world"}).json()["tokens"]
    answer = real.post("/generate", {"input_ids": prompt, "sampling_params": GREEDY}).json()["output_ids"]
    score = {
        "input_ids": prompt + answer, "sampling_params": {"max_new_tokens": 0}, "return_logprob": True,
        "logprob_start_len": len(prompt), "top_logprobs_num": 1,
    }  # fmt: skip
    meta = real.post("/generate", score).json()["meta_info"]
    assert [entry[1] for entry in meta["input_token_logprobs"]] == answer
    assert [top[0][1] for top in meta["input_top_logprobs"]] == answer


def test_seeded_sampling_repeats(real: Instance) -> None:
    """One seed, one answer; the choices of one request differ."""
    body = {"prompt": "hello", "max_tokens": 24, "seed": 11, "n": 2, "ignore_eos": True}
    first, second = (real.post("/v1/completions", body).json()["choices"] for _ in range(2))
    assert [choice["text"] for choice in first] == [choice["text"] for choice in second]
    assert first[0]["text"] != first[1]["text"]


def test_every_metric_is_in_the_catalogue(real: Instance, pair: Pair) -> None:
    """No sample of scheduler or transfer comes out untyped, on any role, after some traffic."""
    pair.ask("/generate", {"text": "hello", "sampling_params": GREEDY}, "metrics-1")
    for instance in (real, pair.prefill, pair.decode):
        assert " untyped" not in instance.http.get("/metrics").text


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_frees_its_pages(real: Instance, stream: bool) -> None:
    """50 clients that vanish in the middle leave no request and no page behind."""
    body = {"text": "hello", "sampling_params": GREEDY | {"max_new_tokens": 3000}, "stream": stream}
    with ExitStack() as stack:
        for number in range(50):
            stack.enter_context(raw_post(real, "/generate", body, f"gone-{stream}-{number}"))
        eventually(lambda: len(real.http.get("/rooms").json()["rooms"]) == 50, WAIT_S)
    eventually(lambda: is_balanced(real), WAIT_S)
    reasons = {
        r["reason"]
        for r in real.http.get("/rooms/recent").json()["rooms"]
        if r["request_id"].startswith(f"gone-{stream}")
    }
    assert reasons == {"client disconnected"}


def test_pair_says_what_unified_says(real: Instance, pair: Pair) -> None:
    """A prompt of several chunks gives the same ids on a pair as on one instance, and pages really moved."""
    ids = [5 + (7 * n) % 250 for n in range(200)]
    body = {"input_ids": ids, "sampling_params": GREEDY}
    prefill, decode = pair.ask("/generate", body, "pair-1")
    assert (prefill.status_code, decode.status_code) == (200, 200)
    assert decode.json()["output_ids"] == real.post("/generate", body).json()["output_ids"]
    recent = pair.decode.http.get("/rooms/recent").json()["rooms"]
    assert [room["kv_bytes"] > 0 for room in recent if room["request_id"] == "pair-1"] == [True]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_pair_streams_openai_routes(pair: Pair, path: str) -> None:
    """Both legs of a streamed OpenAI request end with [DONE]; decode's has the text."""
    body = {
        "prompt": "hello", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6,
        "temperature": 0, "ignore_eos": True, "stream": True,
    }  # fmt: skip
    prefill, decode = pair.ask(path, body, f"stream-{path}")
    assert events(prefill)[-1] == events(decode)[-1] == "[DONE]"
    finishes = [c["finish_reason"] for e in events(decode)[:-1] for c in e["choices"] if c["finish_reason"]]
    assert finishes == ["length"]


def test_pair_serves_choices_in_rooms_of_their_own(pair: Pair) -> None:
    """n = 2 with two rooms gives two answers."""
    body = {"prompt": "hello", "max_tokens": 5, "temperature": 0, "ignore_eos": True, "n": 2}
    _, decode = pair.ask("/v1/completions", body, "pair-n", room=[next(ROOMS), next(ROOMS)])
    texts = [choice["text"] for choice in decode.json()["choices"]]
    assert len(texts) == 2
    assert texts[0] == texts[1] != ""


def test_pair_frees_everything_when_its_client_leaves(pair: Pair) -> None:
    """Clients that vanish while decode streams, or before prefill has met decode, leave both ledgers balanced."""
    body = {"text": "hello", "sampling_params": GREEDY | {"max_new_tokens": 3000}, "stream": True}
    with ExitStack() as stack:
        for number in range(20):
            rendezvous = {
                "bootstrap_host": "127.0.0.1",
                "bootstrap_port": pair.bootstrap_port,
                "bootstrap_room": next(ROOMS),
            }
            for instance in (pair.prefill, pair.decode) if number % 2 else (pair.prefill,):
                stack.enter_context(raw_post(instance, "/generate", body | rendezvous, f"left-{number}"))
        eventually(lambda: len(pair.decode.http.get("/rooms").json()["rooms"]) == 10, WAIT_S)
    eventually(lambda: is_balanced(pair.decode) and is_balanced(pair.prefill), WAIT_S)


def test_many_streams_say_what_each_says_alone(real: Instance) -> None:
    """64 concurrent streams of different prompts and lengths give the ids of their solo runs."""
    bodies = [
        {"input_ids": [3 + (n * 7 + at) % 250 for at in range(5 + 3 * n)], "sampling_params": GREEDY} for n in range(64)
    ]
    alone = [real.post("/generate", body).json()["output_ids"] for body in bodies]
    with ThreadPoolExecutor(64) as pool:
        streams = list(pool.map(lambda body: real.post("/generate", body | {"stream": True}), bodies))
    assert [events(stream)[-2]["output_ids"] for stream in streams] == alone


def test_scheduler_dies_with_the_api_process(tiny_model_dir: Path, tmp_path: Path) -> None:
    """kill -9 of the API process leaves no scheduler behind."""
    with running(tiny_model_dir, tmp_path, "unified", *FLAGS, command=ENGINE) as instance:
        scheduler = psutil.Process(instance.http.get("/server_info").json()["scheduler_pid"])
        instance.process.kill()
        scheduler.wait(2)


def test_corrupt_model_is_one_message(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Weights that only the scheduler reads and finds cut short: exit 2, the file named, no traceback."""
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model_dir, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    instance = start(broken, tmp_path, "unified", *FLAGS, command=ENGINE)
    try:
        assert instance.exit_code() == 2
    finally:
        stop(instance)
    assert "model.safetensors" in instance.log()
    assert "Traceback" not in instance.log()
