"""Arbitrary values in known fields never become a 5xx: they are served, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.frontend.bodies import ChatBody, CompletionBody, GenerateBody, GenerateKnobs
from tests.engine.api.instance import Instance

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from([0, 1, -1, 2, 1 << 31, 1 << 63, 1 << 64, 1e308, "", "\0", "user", "text", "\U0001f600"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
SHORT: dict[str, Any] = {"max_tokens": 2}


def fields_of(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(kind.__struct_fields__), VALUES, max_size=4)


def check(instance: Instance, path: str, body: dict[str, Any]) -> None:
    response = instance.post(path, body)
    assert response.status_code in (200, 400, 404), (path, body, response.text)
    if response.status_code != 200:
        assert response.json()["error"]["message"]


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(fields_of(ChatBody))
def test_chat_survives(unified: Instance, fields: dict[str, Any]) -> None:
    """/v1/chat/completions with any values."""
    check(unified, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], **SHORT, **fields})


@FUZZ
@given(fields_of(CompletionBody))
def test_completions_survive(unified: Instance, fields: dict[str, Any]) -> None:
    """/v1/completions with any values."""
    check(unified, "/v1/completions", {"prompt": "hi", **SHORT, **fields})


@FUZZ
@given(fields_of(GenerateBody), fields_of(GenerateKnobs))
def test_generate_survives(unified: Instance, fields: dict[str, Any], knobs: dict[str, Any]) -> None:
    """/generate with any values, also within sampling_params."""
    check(unified, "/generate", {"text": "hi", "sampling_params": {"max_new_tokens": 2, **knobs}, **fields})


@FUZZ
@given(fields_of(GenerateBody))
def test_legs_survive(decode: Instance, fields: dict[str, Any]) -> None:
    """/generate on a decode, whose rendezvous fields may be anything."""
    base = {"text": "hi", "bootstrap_host": "127.0.0.1", "bootstrap_port": 8998, "bootstrap_room": 1}
    check(decode, "/generate", base | fields)


DEEP = "lists in lists"
CALL = {"function": {"name": "f", "x": DEEP}}


def tools(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"const": DEEP}}}], **fields}


@pytest.mark.parametrize(
    "fields",
    [
        tools(),
        tools(tool_choice="required"),
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": DEEP}}}},
        {"chat_template_kwargs": {"x": DEEP}},
        {"messages": [{"role": "assistant", "tool_calls": [CALL]}]},
    ],
    ids=["tools", "forced", "format", "template", "calls"],
)
def test_any_depth_is_served_or_refused(unified: Instance, fields: dict[str, Any]) -> None:
    """Each reader of a body goes to a depth of its own: what one took may be too much for the next."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], **SHORT, **fields})
    for levels in range(930, 1000, 2):
        content = body.replace(json.dumps(DEEP), "[" * levels + "]" * levels)
        response = unified.http.post("/v1/chat/completions", content=content)
        assert response.status_code in (200, 400), (levels, response.text)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/abort_request", "/generate"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=60))
def test_bytes_are_refused(unified: Instance, path: str, raw: bytes) -> None:
    """Bytes that are no such body are a 400."""
    assert unified.http.post(path, content=raw).status_code in (200, 400)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries({"role": SCALARS, "content": VALUES}, optional={"name": SCALARS, "tool_calls": VALUES}),
        max_size=4,
    )
)
def test_messages_survive(unified: Instance, messages: list[dict[str, Any]]) -> None:
    """Any list of messages."""
    check(unified, "/v1/chat/completions", {"messages": messages, **SHORT})
