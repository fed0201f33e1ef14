"""Prefill and decode legs: rooms, peers, scoring, the registry."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from engine import PROTOCOL_VERSION
from engine.messages import RoomRef
from tests.engine.api.instance import Instance
from tests.streams import events

GREEDY = {"max_new_tokens": 4}
BODIES: dict[str, dict[str, Any]] = {
    "/generate": {"text": "hello"},
    "/v1/completions": {"prompt": "hello"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
}
ROOM = {"bootstrap_host": "127.0.0.1", "bootstrap_port": 8998, "bootstrap_room": 77}


def rooms_sent(instance: Instance, request_id: str) -> list[RoomRef | None]:
    return [message.room for message in instance.sent() if message.request_id == request_id]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_leg_without_a_room_is_refused(path: str, role: str, request: pytest.FixtureRequest) -> None:
    """A generating request sent past the router says what is missing and where to send it."""
    instance: Instance = request.getfixturevalue(role)
    status, error = instance.error(path, BODIES[path])
    assert (status, error["code"], error["param"]) == (400, "room_missing", "bootstrap_room")
    assert "router" in error["message"]


@pytest.mark.parametrize("path", BODIES)
def test_decode_passes_the_room_on(decode: Instance, path: str) -> None:
    """The scheduler gets the rendezvous as the router wrote it."""
    decode.post(path, BODIES[path] | ROOM, f"room-{path}").raise_for_status()
    assert rooms_sent(decode, f"room-{path}") == [RoomRef("127.0.0.1", 8998, 77)]


def test_names_of_this_machine_are_one_peer(decode: Instance) -> None:
    """localhost and 127.0.0.1 are the same peer, and the scheduler gets the configured name."""
    body = BODIES["/generate"] | ROOM | {"bootstrap_host": "localhost"}
    decode.post("/generate", body, "room-localhost").raise_for_status()
    assert rooms_sent(decode, "room-localhost") == [RoomRef("127.0.0.1", 8998, 77)]


@pytest.mark.parametrize("wrong", [{"bootstrap_host": "10.0.0.9"}, {"bootstrap_port": 8999}])
def test_unknown_peer_is_never_dialled(decode: Instance, wrong: dict[str, Any]) -> None:
    """A bootstrap address that is not configured is refused, and the known ones are named."""
    status, error = decode.error("/generate", BODIES["/generate"] | ROOM | wrong)
    assert (status, error["code"]) == (400, "unknown_peer")
    assert "127.0.0.1:8998" in error["message"]


def test_lists_of_rooms_are_dealt_out(decode: Instance) -> None:
    """For n > 1 the router writes lists, one entry a sequence."""
    rooms = {"bootstrap_host": ["127.0.0.1"] * 2, "bootstrap_port": [8998] * 2, "bootstrap_room": [5, 9]}
    decode.post("/v1/completions", {"prompt": "a", "n": 2} | rooms, "room-list").raise_for_status()
    assert [room and room.room for room in rooms_sent(decode, "room-list")] == [5, 9]


def test_scalar_room_counts_up(prefill: Instance) -> None:
    """A scalar room stands for room, room + 1, ... (SGLang)."""
    prefill.post("/v1/completions", {"prompt": "a", "n": 2} | ROOM, "room-scalar").raise_for_status()
    assert [room and room.room for room in rooms_sent(prefill, "room-scalar")] == [77, 78]


def test_list_of_wrong_length_is_refused(decode: Instance) -> None:
    """As many rooms as sequences, or a 400 with both numbers."""
    status, error = decode.error("/v1/completions", {"prompt": "a", "n": 3} | ROOM | {"bootstrap_room": [1, 2]})
    assert (status, error["param"]) == (400, "bootstrap_room")
    assert "2 entries for 3" in error["message"]


def test_room_beyond_64_bit_is_refused(prefill: Instance) -> None:
    """A room is an unsigned 64-bit number."""
    assert prefill.error("/generate", BODIES["/generate"] | ROOM | {"bootstrap_room": -1})[0] == 400


def test_prefill_answers_with_its_one_token(prefill: Instance) -> None:
    """The prefill leg's answer has the first token only, streamed or not."""
    body = BODIES["/generate"] | ROOM | {"sampling_params": GREEDY}
    assert prefill.post("/generate", body).json()["text"] == "hell"
    streamed = events(prefill.post("/generate", body | {"stream": True, "bootstrap_room": 78}))
    assert (streamed[0]["text"], streamed[-1]) == ("hell", "[DONE]")


def test_prefill_scores_without_a_room(prefill: Instance) -> None:
    """A scoring request needs no decode leg."""
    body = {
        "input_ids": [10, 20], "sampling_params": {"max_new_tokens": 0},
        "return_logprob": True, "logprob_start_len": 0,
    }  # fmt: skip
    meta = prefill.post("/generate", body, "score-1").json()["meta_info"]
    assert meta["input_token_logprobs"] == [[None, 10, None], [-0.2, 20, None]]
    assert rooms_sent(prefill, "score-1") == [None]


def test_decode_does_not_score(decode: Instance) -> None:
    """Decode computes no prompts, and says who does."""
    body = {"input_ids": [10], "sampling_params": {"max_new_tokens": 0}, "return_logprob": True} | ROOM
    status, error = decode.error("/generate", body)
    assert (status, error["code"]) == (400, "scoring_on_decode")


def test_decode_leaves_prompt_logprobs_to_prefill(decode: Instance) -> None:
    """The router takes the prompt's logprobs from the prefill leg; decode asks its scheduler for none."""
    body = BODIES["/generate"] | ROOM | {"return_logprob": True, "logprob_start_len": 0}
    assert decode.post("/generate", body, "plp-1").json()["meta_info"]["input_token_logprobs"] == []
    assert [m.sampling.prompt_logprobs for m in decode.sent() if m.request_id == "plp-1"] == [None]


def test_registry_says_where_the_control_channel_is(prefill: Instance) -> None:
    """Decode learns incarnation, endpoint and contract at the bootstrap port."""
    entry = httpx.get(f"{prefill.registry}/registry").json()
    info = prefill.http.get("/server_info").json()
    assert entry == {
        "protocol": PROTOCOL_VERSION, "instance": f"prefill-{prefill.port}", "incarnation": info["incarnation"],
        "role": "prefill", "control_endpoint": "tcp://127.0.0.1:9",
        "contract": {"dtype": "float32"},
    }  # fmt: skip
    assert len(entry["incarnation"]) == 32
