"""POST /generate in SGLang's shape, against an instance whose fake scheduler echoes the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.api.instance import Instance
from tests.streams import events
from tests.tiny_model import vocabulary

IDS = vocabulary()
HELLO = [IDS["hell"], IDS["o"]]
EOS = 2


def knobs(**values: Any) -> dict[str, Any]:
    return {"max_new_tokens": 20, "temperature": 0} | values


def test_answer_has_sglang_shape(unified: Instance) -> None:
    """The text, the ids with the EOS that ended them, and the counts are where SGLang has them."""
    answer = unified.post("/generate", {"text": "hello", "sampling_params": knobs()}, "shape-1").json()
    assert answer["text"] == "hello"
    assert answer["output_ids"] == [*HELLO, EOS]
    meta = answer["meta_info"]
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("shape-1", 2, 3)
    assert meta["cached_tokens"] == 4
    assert meta["finish_reason"] == {"type": "stop", "matched": EOS}


def test_input_ids_reach_the_scheduler_unchanged(unified: Instance) -> None:
    """Token ids given by the client are computed as they are."""
    unified.post("/generate", {"input_ids": [9, 8, 7], "sampling_params": knobs()}, "ids-1").raise_for_status()
    assert [message.prompt_ids for message in unified.sent() if message.request_id == "ids-1"] == [[9, 8, 7]]


def test_sampling_values_reach_the_scheduler(unified: Instance) -> None:
    """Every knob arrives under its own name, -1 for top_k meaning no limit."""
    given = knobs(
        temperature=0.5, top_p=0.9, top_k=-1, min_p=0.1, presence_penalty=0.2, frequency_penalty=0.3,
        repetition_penalty=1.1, seed=42, logit_bias={"7": -3.5}, stop_token_ids=[9], ignore_eos=True,
        min_new_tokens=2,
    )  # fmt: skip
    unified.post("/generate", {"text": "hello", "sampling_params": given}, "knobs-1").raise_for_status()
    sampling = next(message.sampling for message in unified.sent() if message.request_id == "knobs-1")
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 0, 0.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.2, 0.3)
    assert (sampling.repetition_penalty, sampling.seed, sampling.logit_bias) == (1.1, 42, {7: -3.5})
    assert (sampling.stop_token_ids, sampling.ignore_eos) == ((9,), True)
    assert (sampling.min_tokens, sampling.max_tokens) == (2, 20)


def test_length_finish_says_how_long(unified: Instance) -> None:
    """An answer cut by max_new_tokens says so."""
    answer = unified.post("/generate", {"text": "hello", "sampling_params": knobs(max_new_tokens=1)}).json()
    assert answer["output_ids"] == HELLO[:1]
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 1}


def test_logprobs_of_prompt_and_output(unified: Instance) -> None:
    """Logprobs come as (logprob, id, text) from logprob_start_len on; the first prompt token has none."""
    body = {
        "text": "hello", "sampling_params": knobs(max_new_tokens=1), "return_logprob": True,
        "logprob_start_len": 0, "top_logprobs_num": 2, "return_text_in_logprobs": True,
    }  # fmt: skip
    meta = unified.post("/generate", body).json()["meta_info"]
    assert meta["input_token_logprobs"] == [[None, HELLO[0], "hell"], [-HELLO[1] / 100, HELLO[1], "o"]]
    assert meta["output_token_logprobs"] == [[-HELLO[0] / 100, HELLO[0], "hell"]]
    assert meta["input_top_logprobs"][0] is None
    assert [entry[:2] for entry in meta["output_top_logprobs"][0]] == [
        [-HELLO[0] / 100, HELLO[0]],
        [-HELLO[0] / 100 - 1, HELLO[0] + 1],
    ]


def test_prompt_logprobs_start_where_asked(unified: Instance) -> None:
    """logprob_start_len k leaves out the first k prompt tokens."""
    body = {
        "input_ids": [10, 20, 30], "sampling_params": knobs(max_new_tokens=1), "return_logprob": True,
        "logprob_start_len": 1,
    }  # fmt: skip
    meta = unified.post("/generate", body).json()["meta_info"]
    assert meta["input_token_logprobs"] == [[-0.2, 20, None], [-0.3, 30, None]]


def test_no_prompt_logprobs_by_default(unified: Instance) -> None:
    """return_logprob alone asks for those of the output only, as in SGLang."""
    body = {"text": "hello", "sampling_params": knobs(max_new_tokens=1), "return_logprob": True}
    meta = unified.post("/generate", body).json()["meta_info"]
    assert meta["input_token_logprobs"] == []
    assert len(meta["output_token_logprobs"]) == 1


def test_scoring_makes_no_tokens(unified: Instance) -> None:
    """max_new_tokens 0 with logprobs scores the prompt and generates nothing."""
    body = {
        "input_ids": [10, 20], "sampling_params": knobs(max_new_tokens=0), "return_logprob": True,
        "logprob_start_len": 0,
    }  # fmt: skip
    answer = unified.post("/generate", body).json()
    assert (answer["text"], answer["output_ids"]) == ("", [])
    assert answer["meta_info"]["input_token_logprobs"] == [[None, 10, None], [-0.2, 20, None]]


def test_list_of_texts_gives_list_of_answers(unified: Instance) -> None:
    """A batch is answered in its own order, even a batch of one."""
    answers = unified.post("/generate", {"text": ["hello", "the"], "sampling_params": knobs()}).json()
    assert [answer["text"] for answer in answers] == ["hello", "the"]
    assert len(unified.post("/generate", {"text": ["the"], "sampling_params": knobs()}).json()) == 1


@pytest.mark.parametrize("word", ["seed", "sampling_seed"])
def test_choices_have_seeds_of_their_own(unified: Instance, word: str) -> None:
    """n sequences of one seeded request differ in seed; the first has the seed that was given, by either name."""
    body = {"text": "hello", "sampling_params": knobs(n=3, **{word: 5})}
    assert len(unified.post("/generate", body, f"seeds-{word}").json()) == 3
    seeds = [message.sampling.seed for message in unified.sent() if message.request_id == f"seeds-{word}"]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3


def test_stream_repeats_what_was_said(unified: Instance) -> None:
    """Each event has the whole text and ids so far, the last one the finish reason, then [DONE]."""
    body = {"text": "hello", "sampling_params": knobs(), "stream": True}
    *said, done = events(unified.post("/generate", body))
    assert done == "[DONE]"
    assert [event["text"] for event in said] == ["hell", "hello", "hello"]
    assert [len(event["output_ids"]) for event in said] == [1, 2, 3]
    assert [event["meta_info"]["finish_reason"] for event in said[:2]] == [None, None]
    assert said[-1]["meta_info"]["finish_reason"]["type"] == "stop"


def test_stop_string_across_token_border(unified: Instance) -> None:
    """A stop string that begins in one token and ends in the next is cut off, and the scheduler is told."""
    body = {"text": "hello the hello", "sampling_params": knobs(stop="lo t")}
    answer = unified.post("/generate", body, "stop-1").json()
    assert answer["text"] == "hel"
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "lo t"}


def test_stop_string_aborts_the_sequence(unified: Instance) -> None:
    """A sequence that goes on behind its stop string is ended in the scheduler."""
    body = {"text": "hello", "sampling_params": knobs(stop=["hell"])}
    assert unified.post("/generate", body, "stall-stop").json()["text"] == ""
    assert unified.reason("stall-stop") == "satisfied: stop string"
