"""The real router in front of a real pair: the four rules that make it work well, each against smg itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.serving.rig import Pair, Process, pair, router, until

LONG = {"max_tokens": 3000, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def routed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Process]]:
    """A pair with the tiny model and smg in front of it."""
    folder = tmp_path_factory.mktemp("routed")
    with pair(tiny_model_dir, folder, "--dtype", "float64") as sides, router(sides, folder) as smg:
        yield sides, smg


def chat(content: str = "hello", **more: object) -> dict[str, object]:
    """Return a chat request."""
    return {"model": "test", "messages": [{"role": "user", "content": content}], **more}


def events(answer: httpx.Response) -> list[str]:
    """Return the data of each server-sent event."""
    return [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]


def test_each_route_answers_through_the_router(routed: tuple[Pair, Process]) -> None:
    """Chat, completions and generate; KV travels for each."""
    sides, smg = routed
    before = {record["rid"] for record in sides.decode.get("/rooms/recent")["rooms"]}
    answers = [
        smg.post("/v1/chat/completions", chat(max_tokens=4)),
        smg.post("/v1/completions", {"model": "test", "prompt": "hello", "max_tokens": 4}),
        smg.post("/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 4}}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    new = [record for record in sides.decode.get("/rooms/recent")["rooms"] if record["rid"] not in before]
    assert len(new) == 3
    assert all(record["kv_bytes"] > 0 for record in new)


def test_several_choices_get_a_room_each(routed: tuple[Pair, Process]) -> None:
    """The router turns the three bootstrap fields into lists for n > 1."""
    _, smg = routed
    answer = smg.post("/v1/chat/completions", chat(n=3, max_tokens=8, seed=1, temperature=1))
    assert answer.status_code == 200, answer.text
    texts = [choice["message"]["content"] for choice in answer.json()["choices"]]
    assert len(texts) == 3
    assert len(set(texts)) > 1


def test_a_stream_ends_with_done(routed: tuple[Pair, Process]) -> None:
    """Chunks, usage when asked, [DONE]."""
    _, smg = routed
    body = chat(max_tokens=5, stream=True, ignore_eos=True, stream_options={"include_usage": True})
    got = events(smg.post("/v1/chat/completions", body))
    assert got[-1] == "[DONE]"
    assert json.loads(got[-2])["usage"]["completion_tokens"] == 5


def test_rule_1_a_client_that_leaves_before_the_first_token_cancels_both_legs(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    """While the prompt is being computed, both legs hold their headers, so the drop reaches both."""
    with pair(tiny_model_dir, tmp_path, "--chunk-tokens", "16") as sides, router(sides, tmp_path) as smg:
        body = {"model": "test", "prompt": "hello " * 900, "max_tokens": 4, "stream": True}

        def computing() -> bool:
            rooms = sides.prefill.get("/rooms")["rooms"]
            return bool(rooms) and "computing" in rooms[0]["at"]

        payload = json.dumps(body)
        with socket.create_connection(("127.0.0.1", int(smg.url.rpartition(":")[2]))) as client:
            head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
            client.sendall(f"{head}\r\nContent-Length: {len(payload)}\r\n\r\n{payload}".encode())
            until(computing, 10, "the prompt is being computed")
        until(sides.is_idle, 1.0, "both legs ended and both ledgers free")
        assert [r["reason"] is not None for r in sides.prefill.get("/rooms/recent")["rooms"]] == [True]


def test_rule_2_a_dropped_stream_is_noticed_within_a_second(routed: tuple[Pair, Process]) -> None:
    """50 streams through the router, all dropped at once: rooms empty, ledgers balanced and free."""
    sides, smg = routed
    with httpx.Client(timeout=60, limits=httpx.Limits(max_connections=100)) as client, ThreadPoolExecutor(50) as pool:
        requests = [
            client.build_request("POST", smg.url + "/v1/chat/completions", json=chat(stream=True, **LONG))
            for _ in range(50)
        ]
        streams = list(pool.map(lambda request: client.send(request, stream=True), requests))
        assert {stream.status_code for stream in streams} == {200}
        for stream in streams:
            stream.close()
        dropped = time.monotonic()
        until(sides.is_idle, 5.0, "both ledgers free")
        assert time.monotonic() - dropped < 1.0 + 0.5  # the poll itself asks four times


CROWD = """
import asyncio, httpx, json, sys

async def one(client):
    async with client.stream("POST", sys.argv[1], json=json.loads(sys.argv[2])) as answer:
        async for _ in answer.aiter_lines():
            pass

async def main():
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        await asyncio.gather(*(one(client) for _ in range(50)))

asyncio.run(main())
"""


def test_killed_client_of_fifty_streams_leaves_nothing(routed: tuple[Pair, Process]) -> None:
    """Killed while some compute, some wait for pages and some generate: no room, no page stays on either side."""
    sides, smg = routed
    body = chat(**LONG, stream=True)
    with subprocess.Popen([sys.executable, "-c", CROWD, f"{smg.url}/v1/chat/completions", json.dumps(body)]) as client:
        until(lambda: len(sides.decode.get("/rooms")["rooms"]) == 50, 30.0, "50 rooms on decode")
        client.kill()
    until(sides.is_idle, 10.0, "no room and no page in use")


@pytest.mark.parametrize(
    ("change", "status"),
    [({"temperature": -1}, 400), ({"max_tokens": -5}, 400), ({"prompt": "hello " * 20000}, 400)],
)
def test_rule_3_errors_survive_the_router(routed: tuple[Pair, Process], change: dict[str, object], status: int) -> None:
    """A client's mistake comes back as such, with a message, plain and streamed."""
    _, smg = routed
    for stream in (False, True):
        answer = smg.post("/v1/completions", {"model": "test", "prompt": "hello", "stream": stream, **change})
        assert answer.status_code == status, answer.text
        assert "message" in answer.text


def test_body_that_is_too_large_is_the_clients_mistake(routed: tuple[Pair, Process]) -> None:
    """413 from the router itself: that of an engine would come out as 500."""
    _, smg = routed
    answer = smg.post("/v1/completions", {"model": "test", "prompt": "a" * (17 << 20)})
    assert answer.status_code == 413


def test_rule_4_the_engine_owns_the_deadline(tiny_model_dir: Path, tmp_path: Path) -> None:
    """The router has no first-byte timeout; the engine ends the request at its own."""
    with pair(tiny_model_dir, tmp_path, "--request-timeout", "1") as sides, router(sides, tmp_path) as smg:
        answer = smg.post("/v1/chat/completions", chat(**LONG))
        assert answer.status_code == 503
        assert "deadline" in answer.text
        until(sides.is_idle, 2.0, "both ledgers free")


def test_the_openai_client_works_through_the_router(routed: tuple[Pair, Process]) -> None:
    """The official client, plain and streaming."""
    from openai import OpenAI

    _, smg = routed
    with OpenAI(base_url=smg.url + "/v1", api_key="none", max_retries=0) as client:
        messages = [{"role": "user", "content": "hello"}]
        plain = client.chat.completions.create(model="test", messages=messages, max_tokens=6, temperature=0)  # type: ignore[arg-type]
        stream = client.chat.completions.create(
            model="test",
            messages=messages,
            max_tokens=6,
            temperature=0,
            stream=True,  # type: ignore[arg-type]
        )
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert streamed == plain.choices[0].message.content
