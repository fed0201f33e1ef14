"""The official OpenAI client against a real engine, directly and through the real router and a pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.serving.rig import engine, pair, router, running

MESSAGES: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
]
SCHEMA = {
    "type": "object",
    "properties": {
        "fine": {"type": "boolean"},
        "unit": {"enum": ["C", "F", "K", "R"]},
        "digit": {"enum": [*range(10)]},
    },
    "required": ["fine", "unit", "digit"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Weather now", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "news", "parameters": SCHEMA}},
]


@pytest.fixture(scope="module")
def direct(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of one unified engine."""
    process = engine("unified", tiny_model_dir, tmp_path_factory.mktemp("direct"), "--dtype", "float64")
    with running(process), OpenAI(base_url=process.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def routed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of the router before a pair."""
    folder = tmp_path_factory.mktemp("routed")
    with (
        pair(tiny_model_dir, folder, "--dtype", "float64") as sides,
        router(sides, folder) as smg,
        OpenAI(base_url=smg.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.fixture(params=["direct", "routed"])
def client(request: pytest.FixtureRequest) -> OpenAI:
    """Each of the two ways."""
    found: OpenAI = request.getfixturevalue(request.param)
    return found


def chat(client: OpenAI, **more: Any) -> ChatCompletion:
    """Return a whole answer; greedy and short unless told otherwise."""
    wanted = {"model": "test", "messages": MESSAGES, "temperature": 0, "max_tokens": 120} | more
    answer: ChatCompletion = client.chat.completions.create(**wanted)
    return answer


def chunks(client: OpenAI, **more: Any) -> list[ChatCompletionChunk]:
    """Return the chunks of the same answer, streamed."""
    wanted = {"model": "test", "messages": MESSAGES, "temperature": 0, "max_tokens": 120} | more
    return list(client.chat.completions.create(stream=True, **wanted))


@dataclass
class Assembled:
    """What a client has of a streamed choice in the end."""

    content: str
    calls: list[tuple[str, str, str]]
    """Id, name, arguments."""
    finish: str | None


def assembled(stream: list[ChatCompletionChunk], index: int = 0) -> Assembled:
    """Put the chunks of one choice together as the API documents them."""
    whole = Assembled("", [], None)
    for chunk in stream:
        for choice in chunk.choices:
            if choice.index != index:
                continue
            whole.content += choice.delta.content or ""
            whole.finish = choice.finish_reason or whole.finish
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                if call.id is not None:
                    assert (call.index, call.type) == (len(whole.calls), "function")
                    whole.calls.append((call.id, call.function.name or "", ""))
                ident, name, arguments = whole.calls[call.index]
                whole.calls[call.index] = (ident, name, arguments + (call.function.arguments or ""))
    return whole


def test_a_streamed_answer_is_the_whole_one(client: OpenAI) -> None:
    """Text, finish reason, and the usage in a last chunk without choices."""
    whole = chat(client, max_tokens=20)
    stream = chunks(client, max_tokens=20, stream_options={"include_usage": True})
    assert assembled(stream).content == whole.choices[0].message.content
    assert assembled(stream).finish == whole.choices[0].finish_reason
    assert whole.usage is not None
    assert stream[-1].choices == []
    assert stream[-1].usage is not None
    assert stream[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_cached_tokens_are_in_the_usage(client: OpenAI) -> None:
    """The second time a prompt of 60 to 90 tokens is told as cached but for its last page."""
    messages = [{"role": "user", "content": "a prompt that nobody else sends"}]
    first, second = (chat(client, messages=messages, max_tokens=4).usage for _ in range(2))
    assert first is not None
    assert second is not None
    assert second.prompt_tokens_details is not None
    assert second.prompt_tokens_details.cached_tokens == (second.prompt_tokens - 1) // 16 * 16 > 0


def test_choices_and_logprobs(client: OpenAI) -> None:
    """n = 2 with a seed: two answers, each token with its own logprob first among two alternatives or behind them."""
    answer = chat(client, n=2, temperature=1, seed=5, max_tokens=6, logprobs=True, top_logprobs=2)
    assert len({choice.message.content for choice in answer.choices}) == 2
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert 0 < len(choice.logprobs.content) <= 6
        for token in choice.logprobs.content:
            assert token.logprob <= max(top.logprob for top in token.top_logprobs)


def test_an_answer_follows_its_schema(client: OpenAI) -> None:
    """A random model writes an object of the schema, whole and streamed, and ends it."""
    whole = chat(client, response_format=FORMAT)
    said = json.loads(whole.choices[0].message.content or "")
    assert said.keys() == {"fine", "unit", "digit"}
    assert said["unit"] in "CFKR"
    assert whole.choices[0].finish_reason == "stop"
    assert assembled(chunks(client, response_format=FORMAT)).content == whole.choices[0].message.content


def test_the_grammar_is_the_same_on_both_sides_of_a_pair(direct: OpenAI, routed: OpenAI) -> None:
    """Eight random answers: decode rebuilds the state from the first token and says what one engine says alone."""
    wanted: list[dict[str, Any]] = [{"response_format": FORMAT, "temperature": 1, "seed": seed} for seed in range(8)]
    alone = [chat(direct, **each).choices[0].message.content for each in wanted]
    assert [chat(routed, **each).choices[0].message.content for each in wanted] == alone
    assert len(set(alone)) > 2


def test_a_json_object_is_one(client: OpenAI) -> None:
    """Without a schema the answer is the beginning of some object, and all of one when it ends in time."""
    choice = chat(client, response_format={"type": "json_object"}, max_tokens=60).choices[0]
    assert (choice.message.content or "").startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content or ""), dict)


def test_a_demanded_call_is_made(client: OpenAI) -> None:
    """tool_choice required: no content, arguments of the schema, finish_reason tool_calls; streamed the same."""
    wanted = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    whole = chat(client, **wanted).choices[0]
    assert whole.message.tool_calls is not None
    [call] = whole.message.tool_calls
    assert call.type == "function"
    assert call.function.name in ("weather", "news")
    assert json.loads(call.function.arguments).keys() == {"fine", "unit", "digit"}
    assert (whole.message.content, whole.finish_reason) == (None, "tool_calls")
    stream = assembled(chunks(client, **wanted))
    assert [(name, arguments) for _, name, arguments in stream.calls] == [(call.function.name, call.function.arguments)]
    assert (stream.content, stream.finish) == ("", "tool_calls")


def test_the_arguments_come_in_pieces(client: OpenAI) -> None:
    """A streamed call is not held back until its end."""
    stream = chunks(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    pieces = [call for chunk in stream for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert len(pieces) > 5


def test_a_call_by_name_is_that_one(client: OpenAI) -> None:
    """Four random answers all call the tool that was named."""
    choice = {"type": "function", "function": {"name": "news"}}
    for seed in range(4):
        calls = chat(client, tools=TOOLS, tool_choice=choice, temperature=1, seed=seed).choices[0].message.tool_calls
        assert calls is not None
        assert [call.function.name for call in calls if call.type == "function"] == ["news"]


def test_the_result_of_a_call_goes_back(client: OpenAI) -> None:
    """The message of a call and its result are taken as history."""
    wanted = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    said = chat(client, **wanted).choices[0].message
    assert said.tool_calls is not None
    result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "sunny"}
    history = [*MESSAGES, said.model_dump(exclude_none=True), result]
    assert chat(client, messages=history, tools=TOOLS, tool_choice="none").choices[0].message.tool_calls is None


def test_a_bad_schema_is_the_clients_error(client: OpenAI) -> None:
    """400 with what is wrong."""
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "foo"}}}
    with pytest.raises(openai.BadRequestError, match="foo"):
        chat(client, response_format=bad)


def test_completions_and_models(client: OpenAI) -> None:
    """The other two parts of the API that clients use."""
    answer = client.completions.create(model="test", prompt="hello the", max_tokens=5, temperature=0, logprobs=1)
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 5
    assert answer.choices[0].logprobs is not None
    assert "test" in [model.id for model in client.models.list()]
