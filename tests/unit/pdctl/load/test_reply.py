"""What streams of chat chunks say, also when they are wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.load.reply import Call, is_token, markup_faults, read_events


def event(delta: dict[str, object], **more: object) -> bytes:
    """Return a chunk as an engine sends it."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}], **more}).encode()


def test_text_and_tokens_are_put_together() -> None:
    """Chunks without content count for nothing; the end is seen."""
    read = read_events(
        [event({"role": "assistant"}), event({"content": "The "}), event({"content": "end"}), b"data: [DONE]"]
    )
    assert (read.text, read.tokens, read.is_done, read.problem) == ("The end", 2, True, None)


def test_a_tool_call_comes_in_pieces() -> None:
    """Name and arguments of each index are joined."""
    pieces = [
        event({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "search", "arguments": ""}}]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": '{"text": '}}]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": '"x"}'}}]}),
    ]
    assert read_events(pieces).calls == (Call(id="c1", name="search", arguments='{"text": "x"}'),)


def test_an_error_event_counts_although_done_follows() -> None:
    """As the router does it when a worker dies: a client that only looks for [DONE] sees success."""
    read = read_events([event({"content": "a"}), b'data: {"error": {"message": "worker gone"}}', b"data: [DONE]"])
    assert read.is_done
    assert "worker gone" in (read.problem or "")


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_make_the_reader_fail(lines: list[bytes]) -> None:
    """What is no chunk is a problem of the answer, never an exception."""
    read = read_events([b"data:" + line for line in lines])
    assert read.tokens >= 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (event({"content": "a"}), True),
        (event({"tool_calls": [{"index": 0}]}), True),
        (event({"role": "assistant"}), False),
        (b'data: {"choices":[{"delta":{"content":"a"}}]}', True),
        (b"data: [DONE]", False),
    ],
)
def test_the_first_token_is_told_from_what_precedes_it(line: bytes, expected: bool) -> None:
    """Written with spaces or without, as engines differ."""
    assert is_token(line) is expected


@pytest.mark.parametrize(
    ("text", "calls", "faults"),
    [
        ("It is <b>bold</b>.", (), 0),
        ('<tool_call>{"name": "search"}</tool_call>', (), 2),
        ("<|python_tag|>search()", (), 1),
        ("", (Call(name="search", arguments='{"text": "x"}'),), 0),
        ("", (Call(name="search", arguments='{"text": '),), 1),
        ("", (Call(name="", arguments="[1]"),), 2),
        ("", (Call(name="search", arguments=""),), 0),
    ],
)
def test_faulty_markup_is_counted(text: str, calls: tuple[Call, ...], faults: int) -> None:
    """Markup in a text and arguments that are no JSON object; ordinary angle brackets are none."""
    assert len(markup_faults(text, calls)) == faults
