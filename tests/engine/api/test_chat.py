"""POST /v1/chat/completions, also through OpenAI's own client."""

from __future__ import annotations

import openai
import pytest

from tests.engine.api.instance import Instance
from tests.streams import events
from tests.tiny_model import vocabulary

HI = [{"role": "user", "content": "the"}]
IDS = vocabulary()
RENDERED = "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"


def test_messages_go_through_the_template(unified: Instance) -> None:
    """The scheduler gets the ids of the rendered template, its markers as single tokens."""
    unified.post("/v1/chat/completions", {"messages": HI, "max_tokens": 3}, "chat-1").raise_for_status()
    sent = next(message for message in unified.sent() if message.request_id == "chat-1")
    text = unified.post("/detokenize", {"tokens": sent.prompt_ids}).json()["text"]
    assert text == RENDERED
    assert (sent.prompt_ids[0], sent.prompt_ids.count(IDS["<|im_end|>"])) == (IDS["<|im_start|>"], 1)


def test_answer_has_openai_shape(unified: Instance) -> None:
    """Message, finish reason and usage are where OpenAI has them."""
    body = {"model": "unknown", "messages": HI, "max_tokens": 5}
    answer = unified.post("/v1/chat/completions", body, "chat-2").json()
    assert (answer["id"], answer["object"]) == ("chatcmpl-chat-2", "chat.completion")
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "user"}
    assert choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}


def test_max_tokens_absent_is_what_the_context_holds(unified: Instance) -> None:
    """Without max_tokens the answer may fill the smaller of context (4096) and KV pool (2048)."""
    unified.post("/v1/chat/completions", {"messages": HI}, "chat-3").raise_for_status()
    sent = next(message for message in unified.sent() if message.request_id == "chat-3")
    assert sent.sampling.max_tokens == 2048 - len(sent.prompt_ids)


def test_text_parts_are_joined(unified: Instance) -> None:
    """Content in parts reads as one text."""
    parts = [{"type": "text", "text": "t"}, {"type": "text", "text": "he"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
    unified.post("/v1/chat/completions", body, "chat-4").raise_for_status()
    sent = next(message for message in unified.sent() if message.request_id == "chat-4")
    assert unified.post("/detokenize", {"tokens": sent.prompt_ids}).json()["text"] == RENDERED


def test_stream_through_openai_client(unified: Instance) -> None:
    """OpenAI's client reads role, deltas, finish reason, and usage when asked."""
    client = openai.OpenAI(base_url=f"{unified.url}/v1", api_key="none")
    with client, client.chat.completions.create(
        model="unknown", messages=[{"role": "user", "content": "the"}], stream=True, max_tokens=5,
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "user"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


def test_stream_without_usage_by_default(unified: Instance) -> None:
    """No chunk has usage unless stream_options asks for it."""
    body = {"messages": HI, "max_tokens": 3, "stream": True}
    *chunks, done = events(unified.post("/v1/chat/completions", body))
    assert done == "[DONE]"
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_choices_are_told_apart_in_a_stream(unified: Instance) -> None:
    """With n = 2 each choice has its own index and its own finish."""
    body = {"messages": HI, "max_tokens": 5, "n": 2, "stream": True}
    chunks = events(unified.post("/v1/chat/completions", body))[:-1]
    for index in (0, 1):
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == "user"
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]


def test_logprobs_have_text_and_bytes(unified: Instance) -> None:
    """Each token comes with its text, bytes, logprob and alternatives."""
    body = {"messages": HI, "max_tokens": 2, "logprobs": True, "top_logprobs": 2}
    content = unified.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    assert (content[1]["token"], content[1]["bytes"]) == ("u", [ord("u")])
    assert content[1]["logprob"] == -IDS["u"] / 100
    assert [top["logprob"] for top in content[1]["top_logprobs"]] == [-IDS["u"] / 100, -IDS["u"] / 100 - 1]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_token_that_ends_an_answer_has_no_logprob(unified: Instance, is_streamed: bool) -> None:
    """It is counted, and is no part of the content. The fake answers with the prompt and EOS."""
    body = {"messages": HI, "logprobs": True, "stream": is_streamed}
    response = unified.post("/v1/chat/completions", body)
    choices = [chunk["choices"][0] for chunk in events(response)[:-1]] if is_streamed else response.json()["choices"]
    tokens = [token["token"] for choice in choices for token in (choice["logprobs"] or {"content": ()})["content"]]
    assert choices[-1]["finish_reason"] == "stop"
    assert len(tokens) == len(unified.sent()[-1].prompt_ids)


def test_bytes_of_tokens_add_up_to_a_character(unified: Instance) -> None:
    """Those of each token are its own, also where it is a part of a character only."""
    body = {"messages": [{"role": "user", "content": "€"}], "max_tokens": 9, "logprobs": True}
    content = unified.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    assert content[6]["bytes"] == [0xE2]
    assert bytes(byte for token in content for byte in token["bytes"]).decode() == "<|im_start|>user\n€"
