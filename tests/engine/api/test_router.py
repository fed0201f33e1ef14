"""The rules that make the router behave, against the real router (smg) in front of a pair with fake schedulers.

smg passes X-Request-ID on, so the request id still chooses the fake's script, on both legs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.api.instance import WAIT_S, Instance, running
from tests.ports import free_port
from tests.streams import events, raw_post
from tests.waiting import eventually

SMG = shutil.which("smg") or str(Path(sys.executable).with_name("smg"))
ROUTES: dict[str, dict[str, Any]] = {
    "/generate": {"text": "hello", "sampling_params": {"max_new_tokens": 8}},
    "/v1/completions": {"model": "tiny", "prompt": "hello"},
    "/v1/chat/completions": {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4},
}


def router_command(port: int, prefill: Instance, registry: int, decode: Instance) -> list[str]:
    """Return the recommended command line; smg's defaults lock out healthy workers for a minute."""
    flags = {
        "host": "127.0.0.1", "port": port, "policy": "round_robin", "decode": decode.url,
        "prometheus-host": "127.0.0.1", "prometheus-port": free_port(), "health-check-interval-secs": 1,
        "health-check-timeout-secs": 1, "health-failure-threshold": 2, "health-success-threshold": 1,
        "worker-startup-check-interval": 1, "worker-startup-timeout-secs": 31536000, "worker-wedge-secs": 600,
        "worker-warmup-secs": 0, "pd-admission-wait-secs": 0, "request-timeout-secs": 3600,
        "shutdown-grace-period-secs": 5, "sse-keepalive-secs": 5, "model-alias": "default=tiny",
    }  # fmt: skip
    switches = (
        "pd-disaggregation", "disable-retries", "disable-circuit-breaker", "disable-worker-overload-protection",
        "disable-tokenizer-autoload", "disable-load-monitoring",
    )  # fmt: skip
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    pair = ["--prefill", prefill.url, str(registry)]
    return [SMG, "launch", *words, *(f"--{name}" for name in switches), *pair]


@dataclass(frozen=True)
class Routed:
    """A pair and a router in front of it; `front` sends through the router."""

    front: Instance
    prefill: Instance
    decode: Instance

    def both_ended(self, request_id: str) -> tuple[str | None, str | None]:
        """Return why each leg ended, prefill's first; None while it lives, or never came."""
        return self.prefill.reason(request_id), self.decode.reason(request_id)


@pytest.fixture(scope="module")
def routed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    """A pair with fake schedulers behind the real smg."""
    folder, registry = tmp_path_factory.mktemp("routed"), free_port()
    name = ("--served-name", "tiny")
    with ExitStack() as stack:
        flags = ("--bootstrap-port", str(registry), *name)
        prefill = stack.enter_context(running(tiny_model_dir, folder / "prefill", "prefill", *flags))
        flags = ("--peers", f"127.0.0.1:{registry}", *name)
        decode = stack.enter_context(running(tiny_model_dir, folder / "decode", "decode", *flags))
        port = free_port()
        with (folder / "router.log").open("wb") as log:
            command = router_command(port, prefill, registry, decode)
            router = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        stack.callback(router.wait, WAIT_S)
        stack.callback(router.kill)
        front = Instance(router, port, folder)
        stack.callback(front.http.close)
        eventually(lambda: _is_ready(front), WAIT_S)
        yield Routed(front, prefill, decode)


def _is_ready(front: Instance) -> bool:
    try:
        return front.http.get("/readiness").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("path", ROUTES)
def test_answer_comes_from_decode(routed: Routed, path: str) -> None:
    """A request through the router reaches both legs with one room and one id, and is answered."""
    request_id = f"echo-{path.replace('/', '')}"
    response = routed.front.post(path, ROUTES[path], request_id)
    assert response.status_code == 200, response.text
    rooms = [
        [message.room.room for message in leg.sent() if message.request_id == request_id and message.room]
        for leg in (routed.prefill, routed.decode)
    ]
    assert len(rooms[0]) == 1
    assert rooms[0] == rooms[1]


@pytest.mark.parametrize("path", ROUTES)
def test_stream_passes_the_router(routed: Routed, path: str) -> None:
    """A stream through the router is whole."""
    response = routed.front.post(path, ROUTES[path] | {"stream": True})
    assert response.status_code == 200, response.text
    assert events(response)[-1] == "[DONE]"
    assert len(events(response)) > 2


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_drop_before_the_first_token_ends_both_legs(routed: Routed, path: str, stream: bool) -> None:
    """Rule 1: with headers held back, a client that leaves cancels prefill and decode."""
    request_id = f"hang-{path.replace('/', '')}-{stream}"
    with raw_post(routed.front.port, path, ROUTES[path] | {"stream": stream}, request_id):
        eventually(lambda: routed.prefill.is_live(request_id) and routed.decode.is_live(request_id), WAIT_S)
    gone = "client disconnected"
    eventually(lambda: routed.both_ended(request_id) == (gone, gone), WAIT_S)


@pytest.mark.parametrize("path", ROUTES)
def test_drop_in_a_silence_is_noticed(routed: Routed, path: str) -> None:
    """Rule 2: comments make the router find out that its client left while no token is ready."""
    request_id = f"idle-{path.replace('/', '')}"
    with raw_post(routed.front.port, path, ROUTES[path] | {"stream": True}, request_id) as connection:
        connection.settimeout(WAIT_S)
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert eventually(lambda: routed.decode.reason(request_id), WAIT_S) == "client disconnected"


@pytest.mark.parametrize("path", ROUTES)
def test_refusal_keeps_its_status(routed: Routed, path: str) -> None:
    """Rule 3: a 503 of a leg is a 503 for the client, with its message."""
    response = routed.front.post(path, ROUTES[path], "fail-whole")
    assert response.status_code == 503
    assert "the peer is gone" in response.text


@pytest.mark.parametrize("path", ROUTES)
def test_refusal_of_a_stream_is_whole_json(routed: Routed, path: str) -> None:
    """Rule 3: the router rewraps a stream's refusal; sent chunked, it is not cut short."""
    response = routed.front.post(path, ROUTES[path] | {"stream": True}, "fail-stream")
    assert response.status_code == 503
    text = response.text.strip()
    assert "the peer is gone" in json.dumps(json.loads(text.removeprefix("data: ")))


def test_choices_get_rooms_of_their_own(routed: Routed) -> None:
    """n = 3 through the router arrives as three sequences in three rooms."""
    body = ROUTES["/v1/completions"] | {"n": 3}
    response = routed.front.post("/v1/completions", body, "echo-n3")
    assert [choice["text"] for choice in response.json()["choices"]] == ["hello"] * 3
    rooms = {message.room.room for message in routed.decode.sent() if message.request_id == "echo-n3" and message.room}
    assert len(rooms) == 3


def test_two_prompts_with_choices(routed: Routed) -> None:
    """A list of prompts with n = 2 is served whole, whatever lists the router writes for it."""
    body = ROUTES["/v1/completions"] | {"prompt": ["hello", "the"], "n": 2}
    response = routed.front.post("/v1/completions", body, "echo-p2n2")
    assert response.status_code == 200, response.text
    assert [choice["text"] for choice in response.json()["choices"]] == ["hello", "hello", "the", "the"]


@pytest.mark.parametrize("name", ["tiny", "default", "unknown"])
def test_names_that_the_router_lets_pass_are_served(routed: Routed, name: str) -> None:
    """Whatever model name smg accepts, both legs accept too."""
    response = routed.front.post("/v1/completions", {"model": name, "prompt": "hello"})
    assert response.status_code == 200, response.text
