"""Chat messages on their way to a prompt: what clients send is not always what a template takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import RequestError
from engine.frontend.bodies import ChatBody, ChatMessage, read_body
from engine.frontend.chat_template import ChatTemplate
from engine.frontend.prompts import chat_text

WITHOUT_TOOLS = ChatTemplate("{% for one in messages %}{{ one.content }}{% endfor %}", {})
WITH_TOOLS = ChatTemplate("{% for one in messages %}{{ one.tool_calls | tojson }}{% endfor %}{{ tools }}", {})
BOTH = pytest.mark.parametrize("template", [WITHOUT_TOOLS, WITH_TOOLS])


def messages(call: Any) -> list[ChatMessage]:
    """Return a chat in which the assistant has made this call."""
    body = {"messages": [{"role": "assistant", "tool_calls": [call]}]}
    return read_body(json.dumps(body).encode(), ChatBody).messages


@BOTH
@pytest.mark.parametrize("function", [None, "f", 5, ["f"]])
def test_a_call_of_no_function_is_refused(template: ChatTemplate, function: object) -> None:
    """400 by name, not a 500 from the depths."""
    with pytest.raises(RequestError, match=r"tool_calls\[0\]\.function: it must be an object") as refused:
        chat_text(template, messages({"function": function}))
    assert (refused.value.status, refused.value.param) == (400, "messages[0].tool_calls[0].function")


@BOTH
def test_arguments_that_no_decoder_takes_stay_text(template: ChatTemplate) -> None:
    """Too deep for JSON is as good as no JSON."""
    arguments = "[" * 5000 + "]" * 5000
    assert arguments in chat_text(template, messages({"function": {"name": "f", "arguments": arguments}}))


@BOTH
def test_messages_too_deep_to_be_written_are_refused(template: ChatTemplate) -> None:
    """The limit is the stack's: what the body's decoder still took may be too much here."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    message = ChatMessage(role="assistant", tool_calls=[{"function": {"name": "f", "arguments": deep}}])
    with pytest.raises(RequestError, match="nested too deeply") as refused:
        chat_text(template, [message])
    assert (refused.value.status, refused.value.param) == (400, "messages")
