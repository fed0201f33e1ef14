"""The four rules that the router needs, and clients that leave."""

from __future__ import annotations

import http.client
import json

import pytest

from engine.api.answer import HEARTBEAT_S
from tests.engine.api.instance import WAIT_S, Instance
from tests.streams import raw_post
from tests.waiting import eventually

ROUTES = {
    "/generate": {"text": "hello", "sampling_params": {"max_new_tokens": 8}},
    "/v1/completions": {"prompt": "hello"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("script", ["hang", "stall"])
def test_client_that_leaves_is_aborted(unified: Instance, path: str, stream: bool, script: str) -> None:
    """A closed connection ends the request in the scheduler, before the first token or after."""
    request_id = f"{script}-{path.replace('/', '_')}-{stream}"
    with raw_post(unified.port, path, ROUTES[path] | {"stream": stream}, request_id):
        eventually(lambda: unified.is_live(request_id), WAIT_S)
    assert eventually(lambda: unified.reason(request_id), WAIT_S) == "client disconnected"


def test_all_choices_of_a_client_that_leaves_are_aborted(unified: Instance) -> None:
    """Each of n sequences ends."""
    body = ROUTES["/v1/completions"] | {"n": 4}
    with raw_post(unified.port, "/v1/completions", body, "hang-n4"):
        eventually(lambda: unified.is_live("hang-n4"), WAIT_S)
    assert eventually(lambda: unified.reason("hang-n4"), WAIT_S) == "client disconnected"
    ended = [r for r in unified.http.get("/rooms/recent").json()["rooms"] if r["request_id"] == "hang-n4"]
    assert len(ended) == 4


def test_headers_wait_for_the_first_token(unified: Instance) -> None:
    """Rule 1: nothing is sent before the first token is there, then status and token together."""
    gate = unified.folder / "gate"
    gate.unlink(missing_ok=True)
    body = ROUTES["/generate"] | {"stream": True}
    with raw_post(unified.port, "/generate", body, "ask-1") as connection:
        eventually(lambda: unified.is_live("ask-1"), WAIT_S)
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        gate.touch()
        connection.settimeout(10)
        assert connection.recv(12) == b"HTTP/1.1 200"
    gate.unlink()


@pytest.mark.parametrize("path", ROUTES)
def test_comments_fill_silences(unified: Instance, path: str) -> None:
    """Rule 2: with no token for a while, comments come, planned more often than every 250 ms."""
    assert HEARTBEAT_S < 0.25
    with raw_post(unified.port, path, ROUTES[path] | {"stream": True}, f"stall-hb{path}") as connection:
        connection.settimeout(10)
        received = b""
        while received.count(b": hb\n\n") < 4:
            received += connection.recv(65536)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_refusal_before_the_first_token_is_a_chunked_status(unified: Instance, path: str, stream: bool) -> None:
    """Rule 3: a failure before the headers has its own status, and no Content-Length."""
    response = unified.post(path, ROUTES[path] | {"stream": stream}, "fail-1")
    assert response.status_code == 503
    assert response.json()["error"] == {
        "message": "the peer is gone", "type": "server_error", "param": None, "code": "peer_gone",
    }  # fmt: skip
    assert "content-length" not in response.headers
    assert response.headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize("path", ROUTES)
def test_failure_in_a_stream_is_an_event_without_done(unified: Instance, path: str) -> None:
    """A failure after the headers is an error event, and no [DONE] follows."""
    response = unified.post(path, ROUTES[path] | {"stream": True}, "later-1")
    frames = [frame for frame in response.text.split("\n\n") if frame and not frame.startswith(":")]
    assert json.loads(frames[-1].removeprefix("data: "))["error"]["code"] == "read_failed"
    assert "[DONE]" not in response.text


def test_abort_by_the_operator_ends_the_answer(unified: Instance) -> None:
    """POST /abort_request ends a request by its id; its client is answered."""
    with raw_post(unified.port, "/generate", ROUTES["/generate"], "stall-op") as connection:
        eventually(lambda: unified.is_live("stall-op"), WAIT_S)
        assert unified.post("/abort_request", {"rid": "stall-op"}).json() == {"asked": ["stall-op"]}
        connection.settimeout(WAIT_S)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        body = json.loads(answer.read())  # it may come in a packet after that of the head
    assert (answer.status, body["error"]["code"]) == (500, "aborted")
    assert unified.reason("stall-op") == "aborted by the operator"


def test_abort_all_ends_everything(unified: Instance) -> None:
    """abort_all ends whatever is in flight."""
    with (
        raw_post(unified.port, "/generate", ROUTES["/generate"], "stall-all1"),
        raw_post(unified.port, "/generate", ROUTES["/generate"], "hang-all2"),
    ):
        eventually(lambda: unified.is_live("stall-all1") and unified.is_live("hang-all2"), WAIT_S)
        unified.post("/abort_request", {"abort_all": True}).raise_for_status()
        eventually(lambda: not unified.http.get("/rooms").json()["rooms"], WAIT_S)
