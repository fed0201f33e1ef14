"""Tool calls in the answers of both families, however the text is cut into pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.chat_calls import CallReader
from engine.frontend.bodies import ChatBody
from engine.frontend.tool_calls import (
    HERMES,
    LLAMA3_JSON,
    ArgumentsPart,
    CallBegun,
    CallFormat,
    Part,
    Text,
    Tool,
    format_of,
)
from engine.frontend.tool_calls.in_words import in_words
from engine.frontend.tool_use import NO_PARAMETERS, tool_use_of

NAMES = frozenset({"weather", "add"})
Calls = list[tuple[str, str]]

ANSWERS: list[tuple[CallFormat, str, str, Calls]] = [
    (HERMES, "No call at all.", "No call at all.", []),
    (HERMES, "1 < 2 and <tool> is no tag <tool_cal", "1 < 2 and <tool> is no tag <tool_cal", []),
    (
        HERMES,
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>',
        "",
        [("weather", '{"city": "Ulm"}')],
    ),
    (
        HERMES,
        'I will look.\n<tool_call>{"name": "add", "arguments": {"a": 1, "b": [2, {"c": 3}]}}</tool_call>',
        "I will look.",
        [("add", '{"a": 1, "b": [2, {"c": 3}]}')],
    ),
    (
        HERMES,
        '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n<tool_call>\n{"name": "weather", "arguments": '
        '{"city": "a}\\"{</tool_call>, b"}}\n</tool_call>',
        "",
        [("add", "{}"), ("weather", '{"city": "a}\\"{</tool_call>, b"}')],
    ),
    (
        HERMES,
        '<tool_call>{"arguments": {"a" : 1 } , "name": "add"}</tool_call>',
        "",
        [("add", '{"a" : 1 }')],
    ),
    (HERMES, '<tool_call>{"name": "add"}</tool_call> done', " done", [("add", "{}")]),
    (HERMES, '<tool_call>{"name": "add", "arguments": {"a": 1}} and on', " and on", [("add", '{"a": 1}')]),
    (HERMES, '<tool_call>{"name": "add", "arguments": {"a": ', "", [("add", '{"a":')]),
    (
        HERMES,
        '<tool_call>{"name": "steal", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "steal", "arguments": {}}</tool_call>',
        [],
    ),
    (HERMES, "<tool_call>no object</tool_call>", "<tool_call>no object</tool_call>", []),
    (HERMES, '<tool_call>{"name": ', '<tool_call>{"name": ', []),
    (LLAMA3_JSON, '{"name": "weather", "parameters": {"city": "Ulm"}}', "", [("weather", '{"city": "Ulm"}')]),
    (
        LLAMA3_JSON,
        '\n {"name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 2}}\n',
        "",
        [("add", '{"a": 1}'), ("add", '{"a": 2}')],
    ),
    (LLAMA3_JSON, "  Hello {}", "  Hello {}", []),
    (LLAMA3_JSON, '{"name": "Anna", "age": 3}', '{"name": "Anna", "age": 3}', []),
    (LLAMA3_JSON, '{"answer": {"name": "add"}} ok', '{"answer": {"name": "add"}} ok', []),
    (LLAMA3_JSON, '{"name": "add", "parameters": {"a": 1}} so it is', " so it is", [("add", '{"a": 1}')]),
    (LLAMA3_JSON, '{"nam', '{"nam', []),
]


def read(parts: list[Part]) -> tuple[str, Calls]:
    """Return the text, and name and arguments of each call; a call's parts must follow its beginning."""
    calls: Calls = []
    for part in parts:
        match part:
            case CallBegun(index, name):
                assert index == len(calls)
                calls.append((name, ""))
            case ArgumentsPart(index, text):
                assert index == len(calls) - 1
                calls[index] = (calls[index][0], calls[index][1] + text)
    return "".join(part.text for part in parts if isinstance(part, Text)), calls


@pytest.mark.parametrize(("family", "answer", "text", "calls"), ANSWERS)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_text_and_calls(family: CallFormat, answer: str, text: str, calls: Calls, cuts: list[int]) -> None:
    """The same text and calls come out whatever the pieces."""
    parser = family.parser(NAMES)
    at = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    parts = [part for start, end in pairwise(at) for part in parser.push(answer[start:end])]
    found_text, found_calls = read(parts + parser.flush())
    assert found_calls == calls
    # Blanks behind the last call are nobody's.
    assert found_text.rstrip() == text.rstrip() if calls else found_text == text


def test_arguments_are_given_out_while_they_are_written() -> None:
    """The name is known at once, and each piece of the arguments with the piece of text that brought it."""
    parser = HERMES.parser(NAMES)
    assert parser.push('<tool_call>{"name": "add",') == [CallBegun(0, "add")]
    assert parser.push(' "arguments": {"a": ') == [ArgumentsPart(0, '{"a":')]
    assert parser.push("1") == [ArgumentsPart(0, " 1")]
    assert parser.push("}}") == [ArgumentsPart(0, "}")]


def test_text_is_given_out_at_once() -> None:
    """Only what may be the beginning of a tag waits."""
    parser = HERMES.parser(NAMES)
    assert parser.push("a < b") == [Text("a < b")]
    assert parser.push(" <tool") == []
    assert parser.push("s>") == [Text(" <tools>")]


@pytest.mark.parametrize(
    ("template", "family"),
    [
        (None, HERMES),
        ("{{ messages }}", HERMES),
        ("within <tool_call></tool_call> XML tags", HERMES),
        ('Respond in the format {"name": function name, "parameters": dictionary}', LLAMA3_JSON),
    ],
)
def test_the_family_is_read_from_the_chat_template(template: str | None, family: CallFormat) -> None:
    """Qwen's and Llama's templates say how calls are written."""
    assert format_of(template) is family


@pytest.mark.parametrize("family", [HERMES, LLAMA3_JSON])
@pytest.mark.parametrize("is_many", [False, True])
def test_what_the_rules_demand_is_what_the_parser_reads(family: CallFormat, is_many: bool) -> None:
    """Whatever byte the grammar allows first is taken, to its end: the parser finds calls and no text."""
    llguidance = pytest.importorskip("llguidance")
    tools = [Tool("add", {"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"]})]
    grammar = llguidance.LLMatcher.grammar_from_lark(family.rules(tools, is_many, False))
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, grammar)
    written = b""
    while not matcher.is_stopped() and len(written) < 400:
        if matcher.is_accepting() and not is_many:
            break
        mask = matcher.compute_bitmask()
        allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        # The last allowed byte closes objects rather than opening members.
        preferred = [byte for byte in allowed if byte in b'}"'] or allowed
        if written.count(b"add") == 2 and matcher.is_accepting():
            break
        written += bytes([preferred[-1]])
        assert matcher.consume_token(preferred[-1])
    parser = family.parser(NAMES)
    text, calls = read(parser.push(written.decode()) + parser.flush())
    assert text == ""
    assert {name for name, _ in calls} == {"add"}
    assert all(json.loads(arguments)["a"] == 7 for _, arguments in calls)
    assert len(calls) == (2 if is_many else 1)


@pytest.mark.parametrize("family", [HERMES, LLAMA3_JSON])
@pytest.mark.parametrize(
    ("parameters", "good", "bad"),
    [
        (
            {"$defs": {"City": {"type": "string"}}, "properties": {"in": {"$ref": "#/$defs/City"}}, "required": ["in"]},
            '{"in": "Rome"}',
            '{"in": 1}',
        ),
        ({"properties": {"next": {"$ref": "#"}}, "additionalProperties": False}, '{"next": {}}', '{"other": {}}'),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, '{"b": 1}', "[]"),
        (NO_PARAMETERS, "{}", '{"a": 1}'),
    ],
    ids=["defs", "recursive", "any_of", "none"],
)
def test_arguments_follow_their_own_schema(family: CallFormat, parameters: dict[str, Any], good: str, bad: str) -> None:
    """Its references start at its own root, as pydantic writes them; the arguments are an object in any case."""
    llguidance = pytest.importorskip("llguidance")
    grammar = llguidance.LLMatcher.grammar_from_lark(family.rules([Tool("café", parameters)], False, False))
    key, around = ("arguments", "<tool_call>\n%s\n</tool_call>") if family is HERMES else ("parameters", "%s")
    tokenizer = llguidance.LLTokenizer("byte")
    for arguments, is_good in ((good, True), (bad, False)):
        written = around % f'{{"name": "café", "{key}": {arguments}}}'
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        taken = matcher.try_consume_tokens(list(written.encode()))
        assert (taken == len(written.encode()), matcher.is_accepting()) == (is_good, is_good)


CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 7}}\n</tool_call>'
WRONG = CALL.replace("7", "8")
JSON_CALL, JSON_WRONG = '{"name": "add", "parameters": {"a": 7}}', '{"name": "add", "parameters": {"a": 8}}'


@pytest.mark.parametrize(
    ("family", "answer", "is_many", "is_good"),
    [
        (HERMES, "", True, True),
        (HERMES, "1 < 2, and <tool_ is no tag.\n", True, True),
        (HERMES, f"I ask.\n{CALL}", True, True),
        (HERMES, f"{CALL}\n{CALL} Wait.", True, True),
        (HERMES, f"{CALL}\n{CALL}", False, False),
        (HERMES, f"I ask.\n{WRONG}", True, False),
        (HERMES, "<tool_call>{}", True, False),
        (LLAMA3_JSON, "No {call}.", True, True),
        (LLAMA3_JSON, "", True, True),
        (LLAMA3_JSON, f"{JSON_CALL}; {JSON_CALL}", True, True),
        (LLAMA3_JSON, f"{JSON_CALL}; {JSON_CALL}", False, False),
        (LLAMA3_JSON, JSON_WRONG, True, False),
        (LLAMA3_JSON, f" {JSON_WRONG}", True, False),
    ],
)
def test_a_strict_call_follows_its_schema_in_free_text(
    family: CallFormat, answer: str, is_many: bool, is_good: bool
) -> None:
    """Text is what it was; a call that is begun must be one of a tool, with arguments of its schema."""
    llguidance = pytest.importorskip("llguidance")
    tool = {"function": {"name": "add", "strict": True, "parameters": {"properties": {"a": {"const": 7}}}}}
    body = {"tools": [tool | {"type": "function"}], "messages": [], "parallel_tool_calls": is_many}
    use = tool_use_of(msgspec.convert(body, ChatBody), family)
    assert use is not None
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), use.grammar)
    taken = matcher.try_consume_tokens(list(answer.encode()))
    assert (taken == len(answer.encode()) and matcher.is_accepting()) == is_good


def test_without_parallel_calls_only_the_first_is_told() -> None:
    """OpenAI: zero or one. What the model writes after it is no text either."""
    fields = {"tools": [{"type": "function", "function": {"name": "add"}}], "messages": []}
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    for asked, expected in ((None, 2), (True, 2), (False, 1)):
        use = tool_use_of(msgspec.convert(fields | {"parallel_tool_calls": asked}, ChatBody), HERMES)
        reader = CallReader(use, "salt")
        content, _ = reader.push(f"{call}\n{call}", is_last=True)
        assert (content.strip(), len(reader.calls)) == ("", expected)


def test_a_template_without_tools_is_told_in_words() -> None:
    """Signatures join the system message; calls and results become text."""
    tool = {"type": "function", "function": {"name": "add"}}
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    told = in_words(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "2", "tool_call_id": "call_1"},
        ],
        [tool],
    )
    assert told[0]["role"] == "system"
    assert told[0]["content"].startswith("Be brief.\n\n# Tools")
    assert json.dumps(tool) in told[0]["content"]
    assert told[1:] == [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'},
        {"role": "user", "content": "<tool_response>\n2\n</tool_response>"},
    ]
