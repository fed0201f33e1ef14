"""A real prefill and a real decode over NIXL, without a router."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.serving.rig import Pair, Process, engine, pair, running, until
from tests.streams import events, raw_post
from tests.waiting import eventually

WORDS = ("the", "hello", "world", "of", "pages", "and", "rooms")


@pytest.fixture(scope="module")
def sides(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair with the tiny model in float64."""
    with pair(tiny_model_dir, tmp_path_factory.mktemp("pair"), "--dtype", "float64") as both:
        yield both


@pytest.fixture(scope="module")
def unified(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The same engine without a split."""
    process = engine("unified", tiny_model_dir, tmp_path_factory.mktemp("unified"), "--dtype", "float64")
    with running(process):
        yield process


def prompts(count: int) -> list[str]:
    """Return prompts of 1 to 400 words, always the same."""
    chance = random.Random(count)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 400))) for _ in range(count)]


def body(prompt: str, max_tokens: int = 16, **more: object) -> dict[str, object]:
    """Return a greedy completion."""
    return {"model": "test", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **more}


def text(answer: httpx.Response) -> str:
    """Return the text of a completion."""
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_a_pair_says_what_the_same_engine_says_alone(sides: Pair, unified: Process) -> None:
    """24 prompts at once over the pair: the text of unified, one by one."""
    asked = prompts(24)
    alone = [text(unified.post("/v1/completions", body(prompt))) for prompt in asked]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda prompt: sides.post("/v1/completions", body(prompt)), asked))
    assert [text(decode) for _, decode in answers] == alone
    assert all(prefill.status_code == 200 for prefill, _ in answers)
    until(sides.is_idle, 5, "both ledgers free")


def test_kv_really_travels(sides: Pair) -> None:
    """Decode's record shows the bytes of all prompt pages, and stages in the order of life."""
    ids = list(range(10, 110))
    answer = sides.post(
        "/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 4, "temperature": 0}, "rid": "travels"}
    )[1]
    assert answer.status_code == 200
    (record,) = [r for r in sides.decode.get("/rooms/recent")["rooms"] if r["request_id"] == "travels"]
    page_bytes = 2 * 2 * 2 * 16 * 8 * 8  # layers, K and V, KV heads, slots, dim, float64
    assert record["kv_bytes"] == 7 * page_bytes  # 100 tokens: seven pages of 16
    stages = [record["at"][stage] for stage in ("received", "paired", "reading", "landed", "first_token", "last_token")]
    assert stages == sorted(stages)


def test_a_client_that_leaves_frees_both_sides_within_a_second(sides: Pair) -> None:
    """30 streams dropped in the middle: no room and no page is left."""
    full = [sides.legs(body("hello the world", 2000, stream=True, ignore_eos=True)) for _ in range(30)]
    with httpx.Client(timeout=30, limits=httpx.Limits(max_connections=100)) as client, ThreadPoolExecutor(60) as pool:
        prefill = [pool.submit(client.post, sides.prefill.url + "/v1/completions", json=leg) for leg in full]
        requests = [client.build_request("POST", sides.decode.url + "/v1/completions", json=leg) for leg in full]
        streams = list(pool.map(lambda request: client.send(request, stream=True), requests))
        assert all(stream.status_code == 200 for stream in streams)
        assert [leg.result().status_code for leg in prefill] == [200] * 30
        for stream in streams:
            stream.close()
        until(sides.is_idle, 1.0, "both ledgers free")


def test_a_leg_without_its_other_leg_fails_by_the_pairing_clock(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Prefill alone answers 503 `pairing_timeout`, and holds nothing."""
    with pair(tiny_model_dir, tmp_path, "--pairing-timeout", "1") as sides:
        answer = sides.prefill.post("/v1/completions", sides.legs(body("hello")))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "pairing_timeout")
        assert sides.is_idle()


def test_a_full_decode_ends_the_prefill_leg_at_once(tiny_model_dir: Path, tmp_path: Path) -> None:
    """REFUSED reaches prefill long before its pairing clock of 10 s."""
    with pair(tiny_model_dir, tmp_path, decode_flags=("--max-queued", "1")) as sides:
        with raw_post(sides.decode.port, "/v1/completions", sides.legs(body("waits")), "waits"):
            until(lambda: sides.decode.get("/v1/loads")["waiting"] == 1, 5, "a leg without its other one")
            prefill, decode = sides.post("/v1/completions", body("hello"), timeout_s=5)
        assert (decode.status_code, decode.json()["error"]["code"]) == (503, "queue_full")
        assert (prefill.status_code, prefill.json()["error"]["code"]) == (503, "peer_refused")
        until(sides.is_idle, 5, "the leg that waited is gone")


def test_every_metric_is_in_the_catalogue(sides: Pair, unified: Process) -> None:
    """No sample of scheduler or transfer comes out untyped, on any role, after some traffic."""
    sides.post("/v1/completions", body("hello"))
    unified.post("/v1/completions", body("hello"))
    for process in (unified, sides.prefill, sides.decode):
        assert " untyped" not in httpx.get(process.url + "/metrics").text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_both_legs_of_a_stream_end(sides: Pair, path: str) -> None:
    """Each ends with [DONE]; decode's has the reason of its end."""
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    prefill, decode = sides.post(path, body("hello", 6, ignore_eos=True, stream=True) | chat)
    assert events(prefill)[-1] == events(decode)[-1] == "[DONE]"
    finishes = [choice["finish_reason"] for event in events(decode)[:-1] for choice in event["choices"]]
    assert [finish for finish in finishes if finish] == ["length"]


def test_choices_have_rooms_of_their_own(sides: Pair) -> None:
    """n = 2 with two rooms gives two answers."""
    rooms = {"bootstrap_room": [random.getrandbits(62) for _ in range(2)]}
    full = sides.legs(body("hello", 5, ignore_eos=True, n=2)) | rooms
    with ThreadPoolExecutor(2) as pool:
        legs = [pool.submit(side.post, "/v1/completions", full) for side in (sides.prefill, sides.decode)]
    texts = [choice["text"] for choice in legs[1].result().json()["choices"]]
    assert legs[0].result().status_code == 200
    assert len(texts) == 2
    assert texts[0] == texts[1] != ""


def test_clients_that_leave_before_the_legs_have_met_leave_nothing(sides: Pair) -> None:
    """Some posted both legs, some prefill's only; all vanish, and both ledgers are free."""
    with contextlib.ExitStack() as stack:
        for number in range(20):
            full = sides.legs(body("hello", 3000, stream=True, ignore_eos=True))
            for process in (sides.prefill, sides.decode) if number % 2 else (sides.prefill,):
                stack.enter_context(raw_post(process.port, "/v1/completions", full, f"left-{number}"))
        eventually(lambda: len(sides.decode.get("/rooms")["rooms"]) == 10)
    eventually(sides.is_idle)
