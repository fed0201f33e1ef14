"""Bad input: one clear message, the right status, and the field that is wrong."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.engine.api.instance import Instance, running
from tests.streams import raw_post
from tests.waiting import eventually

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"prompt": "hi"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BAD_TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "foo"}}}


def schema(content: dict[str, Any]) -> dict[str, Any]:
    """Return a response_format."""
    return {"type": "json_schema", "json_schema": {"name": "test", "schema": content}}


def named(name: str) -> dict[str, Any]:
    """Return a tool_choice."""
    return {"type": "function", "function": {"name": name}}


BAD_FIELDS = [
    ("/v1/chat/completions", CHAT | {"temperature": -0.1}, "temperature"),
    ("/v1/chat/completions", CHAT | {"temperature": 2.1}, "temperature"),
    ("/v1/chat/completions", CHAT | {"top_p": 0}, "top_p"),
    ("/v1/chat/completions", CHAT | {"top_p": 1.5}, "top_p"),
    ("/v1/chat/completions", CHAT | {"min_p": -1}, "min_p"),
    ("/v1/chat/completions", CHAT | {"top_k": -2}, "top_k"),
    ("/v1/chat/completions", CHAT | {"presence_penalty": 3}, "presence_penalty"),
    ("/v1/chat/completions", CHAT | {"frequency_penalty": -3}, "frequency_penalty"),
    ("/v1/chat/completions", CHAT | {"repetition_penalty": 0}, "repetition_penalty"),
    ("/v1/chat/completions", CHAT | {"n": 0}, "n"),
    ("/v1/chat/completions", CHAT | {"n": 129}, "n"),
    ("/v1/chat/completions", CHAT | {"max_tokens": 0}, "max_tokens"),
    ("/v1/chat/completions", CHAT | {"max_tokens": -1}, "max_tokens"),
    ("/v1/chat/completions", CHAT | {"max_tokens": "ten"}, "max_tokens"),
    ("/v1/chat/completions", CHAT | {"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
    ("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ("/v1/chat/completions", CHAT | {"stop": ["x"] * 17}, "stop"),
    ("/v1/chat/completions", CHAT | {"stop": ""}, "stop"),
    ("/v1/chat/completions", CHAT | {"logit_bias": {"5": 101}}, "logit_bias"),
    ("/v1/chat/completions", CHAT | {"logit_bias": {"99999": 1}}, "logit_bias"),
    ("/v1/chat/completions", CHAT | {"stop_token_ids": [-1]}, "stop_token_ids"),
    ("/v1/chat/completions", CHAT | {"stream_options": {"include_usage": True}}, "stream_options"),
    ("/v1/chat/completions", CHAT | {"response_format": {"type": "xml"}}, "response_format"),
    ("/v1/chat/completions", CHAT | {"response_format": {"type": "json_schema"}}, "response_format"),
    ("/v1/chat/completions", CHAT | {"response_format": schema({"type": "foo"})}, "response_format"),
    ("/v1/chat/completions", CHAT | {"response_format": schema({"$ref": "#/none"})}, "response_format"),
    ("/v1/chat/completions", CHAT | {"response_format": schema({"enum": ["x" * 70_000]})}, "response_format"),
    ("/v1/chat/completions", CHAT | {"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
    ("/v1/chat/completions", CHAT | {"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools"),
    ("/v1/chat/completions", CHAT | {"tools": [TOOL | {"function": {"name": ""}}]}, "tools"),
    ("/v1/chat/completions", CHAT | {"tools": [TOOL] * 129}, "tools"),
    ("/v1/chat/completions", CHAT | {"tool_choice": "required"}, "tool_choice"),
    ("/v1/chat/completions", CHAT | {"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
    ("/v1/chat/completions", CHAT | {"tools": [TOOL], "tool_choice": named("g")}, "tool_choice"),
    ("/v1/chat/completions", CHAT | {"tools": [BAD_TOOL], "tool_choice": "required"}, "tools"),
    ("/v1/chat/completions", {"messages": []}, "messages"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0]",
    ),
    ("/v1/chat/completions", {"messages": "hi"}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "foo", "content": "x"}]}, "messages[0].role"),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ("/v1/chat/completions", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c1"}]}]},
        "messages[0].tool_calls[0].function",
    ),
    ("/v1/chat/completions", CHAT | {"max_completion_tokens": 0}, "max_completion_tokens"),
    ("/v1/chat/completions", CHAT | {"max_completion_tokens": 5000}, "max_completion_tokens"),
    ("/v1/chat/completions", CHAT | {"top_logprobs": 2}, "top_logprobs"),
    ("/v1/chat/completions", CHAT | {"functions": [{"name": "f"}]}, "functions"),
    ("/v1/chat/completions", CHAT | {"function_call": {"name": "f"}}, "function_call"),
    ("/v1/chat/completions", CHAT | {"modalities": ["text", "audio"]}, "modalities"),
    ("/v1/chat/completions", CHAT | {"logit_bias": {"x": 1}}, "logit_bias"),
    (
        "/v1/chat/completions",
        CHAT | {"tools": [TOOL], "tool_choice": {"type": "zzz", "function": {"name": "f"}}},
        "tool_choice",
    ),
    ("/v1/chat/completions", {"messages": [{"role": 5}]}, "messages[0].role"),
    ("/v1/completions", {"prompt": []}, "prompt"),
    ("/v1/completions", {"prompt": ""}, "prompt"),
    ("/v1/completions", {"prompt": ["a", 5]}, "prompt"),
    ("/v1/completions", {"prompt": [264]}, "prompt"),
    ("/v1/completions", {"prompt": ["a"] * 65}, "prompt"),
    ("/v1/completions", {}, "prompt"),
    ("/v1/completions", TEXT | {"suffix": "x"}, "suffix"),
    ("/v1/completions", TEXT | {"best_of": 3}, "best_of"),
    ("/v1/completions", TEXT | {"max_tokens": 2048}, "max_tokens"),
    ("/v1/completions", TEXT | {"logprobs": 21}, "logprobs"),
    ("/generate", {"sampling_params": {}}, "text"),
    ("/generate", {"text": "a", "input_ids": [1]}, "text"),
    ("/generate", {"input_ids": [-5]}, "input_ids"),
    ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens"),
    ("/generate", {"text": "a", "sampling_params": {"temperature": "hot"}}, "sampling_params.temperature"),
    ("/generate", {"text": ["a", "b"], "sampling_params": [{}]}, "sampling_params"),
    ("/generate", {"text": "a", "return_logprob": True, "logprob_start_len": 9}, "logprob_start_len"),
    ("/generate", {"text": "a", "rid": "x" * 300}, "rid"),
    ("/tokenize", {}, "text"),
    ("/detokenize", {"tokens": [9999]}, "tokens"),
]


@pytest.mark.parametrize(("path", "body", "param"), BAD_FIELDS)
def test_bad_field_is_named(unified: Instance, path: str, body: dict[str, Any], param: str) -> None:
    """A wrong value or type is a 400 that names the field and reaches no scheduler."""
    before = len(unified.sent())
    status, error = unified.error(path, body)
    assert (status, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert error["message"]
    assert len(unified.sent()) == before


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'{"prompt": NaN}', b'{"prompt": "\xff"}', b"[" * 100_000])
def test_malformed_json_is_refused(unified: Instance, raw: bytes) -> None:
    """What is not a JSON object is a 400, whatever bytes it is made of."""
    response = unified.http.post("/v1/completions", content=raw)
    assert response.status_code == 400
    assert response.json()["error"]["code"] in ("invalid_json", "invalid_type")


def test_prompt_beyond_the_context_says_both_numbers(unified: Instance) -> None:
    """A prompt that cannot fit names its length and what fits (the fake's pool of 2048 tokens)."""
    status, error = unified.error("/v1/completions", {"prompt": [10] * 2048})
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert error["message"].count("2048") == 2


def test_longest_prompt_that_fits_is_taken(unified: Instance) -> None:
    """One token less leaves room for one new token, where nobody asks for more than one."""
    for asked in ({}, {"max_tokens": 1}):
        answer = unified.post("/v1/completions", {"prompt": [10] * 2047} | asked).json()
        assert answer["usage"]["completion_tokens"] == 1


def test_large_body_is_refused_by_its_length(unified: Instance) -> None:
    """100 MB are refused before they are read into memory, and the client can read why."""
    response = unified.http.post("/v1/completions", content=b"x" * (100 << 20))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


def test_large_chunked_body_is_refused(unified: Instance) -> None:
    """A body that does not announce its length is counted as it comes."""
    response = unified.http.post("/v1/completions", content=(b"x" * (1 << 20) for _ in range(20)))
    assert response.status_code == 413


def test_body_below_the_limit_is_taken(unified: Instance) -> None:
    """A prompt of 5 MB is refused for its tokens, not for its size."""
    status, error = unified.error("/v1/completions", {"prompt": "the " * (5 << 18)})
    assert (status, error["code"]) == (400, "context_length_exceeded")


def test_unknown_fields_are_ignored(unified: Instance) -> None:
    """Routers and newer clients add fields; nulls mean not given."""
    body = TEXT | {"user": "me", "store": True, "metadata": {"a": 1}, "temperature": None, "stop": None}
    assert unified.post("/v1/completions", body).status_code == 200


def test_another_model_is_not_found(unified: Instance) -> None:
    """A body that names a model that is not served is a 404; the router's placeholders are taken."""
    assert unified.error("/v1/completions", TEXT | {"model": "gpt-4"})[0] == 404
    for name in ("unknown", "default", ""):
        assert unified.post("/v1/completions", TEXT | {"model": name}).status_code == 200


def test_unknown_path_and_method(unified: Instance) -> None:
    """Errors of routing have the same shape as all others."""
    assert unified.error("/v1/nothing", {})[0] == 404
    response = unified.http.get("/generate")
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate"])
def test_refusal_of_a_stream_is_chunked(unified: Instance, path: str) -> None:
    """The router keeps a Content-Length on a body that it rewrites, so there must be none."""
    response = unified.post(path, {"stream": True, "prompt": 5, "messages": 5, "text": 5})
    assert response.status_code == 400
    assert "content-length" not in response.headers


def test_full_instance_refuses(tiny_model_dir: Any, tmp_path: Any) -> None:
    """More sequences than may run and wait are a 503 while others are in flight, and a 400 where they never fit."""
    with running(tiny_model_dir, tmp_path, "unified", "--max-running", "2", "--max-queued", "1") as instance:
        with raw_post(instance.port, "/v1/completions", {"prompt": "a", "n": 2}, "hang-2"):
            eventually(lambda: instance.is_live("hang-2"))
            status, error = instance.error("/v1/completions", {"prompt": "a", "n": 2})
            assert (status, error["code"]) == (503, "queue_full")
            status, error = instance.error("/v1/completions", {"prompt": "a", "n": 4})
            assert (status, error["param"]) == (400, "n")
        eventually(lambda: not instance.is_live("hang-2"))
        assert instance.post("/v1/completions", {"prompt": "a", "n": 3}).status_code == 200


def test_client_library_sees_the_code(unified: Instance) -> None:
    """The shape is OpenAI's: its client raises BadRequestError with code and param."""
    import openai

    client = openai.OpenAI(base_url=f"{unified.url}/v1", api_key="none", max_retries=0)
    with client, pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="unknown", prompt="a", temperature=-1)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "temperature")


def test_head_of_health(unified: Instance) -> None:
    """Load balancers ask HEAD /health."""
    assert httpx.head(f"{unified.url}/health").status_code == 200
