"""POST /v1/completions."""

from __future__ import annotations

from tests.engine.api.instance import Instance
from tests.engine.api.test_generate import HELLO
from tests.streams import events


def test_answer_has_openai_shape(unified: Instance) -> None:
    """Text, finish reason and usage are where OpenAI has them."""
    answer = unified.post("/v1/completions", {"prompt": "hello"}, "comp-1").json()
    assert (answer["id"], answer["object"]) == ("cmpl-comp-1", "text_completion")
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("hello", "stop")
    assert answer["usage"]["completion_tokens"] == 3


def test_default_is_sixteen_tokens(unified: Instance) -> None:
    """Without max_tokens OpenAI's default for this route holds."""
    answer = unified.post("/v1/completions", {"prompt": "o" * 40}).json()
    assert answer["choices"][0]["text"] == "o" * 16
    assert answer["choices"][0]["finish_reason"] == "length"


def test_prompts_and_choices_are_numbered_prompt_by_prompt(unified: Instance) -> None:
    """Two prompts with n = 2 give four choices, those of the first prompt first."""
    answer = unified.post("/v1/completions", {"prompt": ["hello", "the"], "n": 2}).json()
    assert [choice["text"] for choice in answer["choices"]] == ["hello", "hello", "the", "the"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 2 + 2


def test_token_ids_are_a_prompt(unified: Instance) -> None:
    """A list of ids is one prompt, a list of lists are several."""
    one = unified.post("/v1/completions", {"prompt": HELLO}).json()
    assert [choice["text"] for choice in one["choices"]] == ["hello"]
    two = unified.post("/v1/completions", {"prompt": [HELLO, HELLO[:1]]}).json()
    assert [choice["text"] for choice in two["choices"]] == ["hello", "hell"]


def test_echo_with_logprobs_covers_prompt_and_output(unified: Instance) -> None:
    """With echo the prompt's text and logprobs come first; its first token has none."""
    body = {"prompt": "hello", "max_tokens": 1, "echo": True, "logprobs": 0}
    choice = unified.post("/v1/completions", body).json()["choices"][0]
    assert choice["text"] == "hellohell"
    assert choice["logprobs"]["tokens"] == ["hell", "o", "hell"]
    assert choice["logprobs"]["token_logprobs"] == [None, -HELLO[1] / 100, -HELLO[0] / 100]
    assert choice["logprobs"]["text_offset"] == [0, 4, 5]


def test_scoring_by_echo_without_new_tokens(unified: Instance) -> None:
    """max_tokens 0 with echo and logprobs scores the prompt."""
    body = {"prompt": "hello", "max_tokens": 0, "echo": True, "logprobs": 1}
    choice = unified.post("/v1/completions", body).json()["choices"][0]
    assert choice["text"] == "hello"
    assert choice["logprobs"]["token_logprobs"] == [None, -HELLO[1] / 100]


def test_false_logprobs_of_the_router_mean_none(unified: Instance) -> None:
    """smg writes `logprobs: false` into bodies that had none."""
    answer = unified.post("/v1/completions", {"prompt": "hello", "logprobs": False}).json()
    assert answer["choices"][0]["logprobs"] is None


def test_stream_adds_up_to_the_text(unified: Instance) -> None:
    """The chunks' texts make the whole; usage comes last when asked."""
    body = {"prompt": "hello", "stream": True, "stream_options": {"include_usage": True}, "echo": True}
    *chunks, done = events(unified.post("/v1/completions", body))
    assert done == "[DONE]"
    assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) == "hellohello"
    assert chunks[-1]["usage"]["total_tokens"] == 5


def test_parts_of_a_character_have_names_of_their_own(unified: Instance) -> None:
    """The three tokens of the euro sign begin at one place, and alternatives that are no characters are told apart."""
    body = {"prompt": "€o", "max_tokens": 4, "logprobs": 2}
    whole = unified.post("/v1/completions", body).json()["choices"][0]["logprobs"]
    assert whole["tokens"] == ["bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "o"]
    assert whole["text_offset"] == [0, 0, 0, 1]
    assert list(whole["top_logprobs"][0]) == ["bytes:\\xe2", "bytes:\\xe3"]
    streamed = events(unified.post("/v1/completions", body | {"stream": True}))[:-1]
    parts = [event["choices"][0]["logprobs"] for event in streamed]
    assert [one for part in parts for one in part["text_offset"]] == [0, 0, 0, 1]


def test_offsets_behind_an_echo_begin_where_its_text_ends(unified: Instance) -> None:
    """Special tokens are not in the text, so they move nothing."""
    body = {"prompt": "<|im_start|>€", "max_tokens": 2, "echo": True, "logprobs": 0}
    choice = unified.post("/v1/completions", body).json()["choices"][0]
    assert choice["text"].startswith("€")
    assert choice["logprobs"]["text_offset"] == [0, 0, 0, 0, 1, 1]
