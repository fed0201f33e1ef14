"""Are the tokens right? Prefill scores prompt + answer in one pass; each token must be its own choice.

Exact equality would be too strict: bfloat16 results differ with the batch size. So a token passes when its
logprob is within `TOLERANCE` of the best one at its position. Mixed-up KV gives tokens that are not.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pdctl.collect.http import InstanceClient
from pdctl.probe.report import Output

TOLERANCE = 0.25
"""Nats between a token and the best one."""


class Score(msgspec.Struct, frozen=True):
    """What scoring says, and why in a few words."""

    output: Output
    why: str


class _Meta(msgspec.Struct, frozen=True):
    input_token_logprobs: list[tuple[float | None, int, str | None]]
    input_top_logprobs: list[list[tuple[float, int, str | None]] | None]


class _Scored(msgspec.Struct, frozen=True):
    meta_info: _Meta


class _Tokens(msgspec.Struct, frozen=True):
    tokens: list[int]


def token_ids(client: InstanceClient, text: str) -> list[int] | None:
    """Return the token ids that this instance makes of a text, or None where it does not tell."""
    answer = client.post("/tokenize", {"text": text})
    if not answer.ok:
        return None
    try:
        return msgspec.json.decode(answer.body, type=_Tokens).tokens
    except msgspec.DecodeError:
        return None


def score(
    client: InstanceClient,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    request_id: str,
    wait_s: float,
) -> Score:
    """Have `client`'s instance score an answer. Costs it one prefill of prompt + answer, and moves no KV."""
    if not output_ids:
        return Score(Output.UNCHECKED, "the answer has no tokens")
    body = {
        "input_ids": [*prompt_ids, *output_ids],
        "sampling_params": {"max_new_tokens": 0, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": max(0, len(prompt_ids) - 1),
        "top_logprobs_num": 1,
    }
    answer = client.post("/generate", body, {"X-Request-ID": request_id}, wait_s)
    if not answer.ok:
        return Score(Output.UNCHECKED, f"prefill did not score the answer: {answer.describe()}")
    try:
        meta = msgspec.json.decode(answer.body, type=_Scored).meta_info
    except msgspec.DecodeError as error:
        return Score(Output.UNCHECKED, f"prefill's score cannot be read: {error}")
    return judge(meta.input_token_logprobs, meta.input_top_logprobs, output_ids)


def judge(
    tokens: Sequence[tuple[float | None, int, str | None]],
    top: Sequence[Sequence[tuple[float, int, str | None]] | None],
    output_ids: Sequence[int],
) -> Score:
    """Compare each token of the answer with the best one at its position.

    The answer is the end of what was scored, so it is aligned from the end: engines differ in whether
    the first entry they return is the token at the start or the one before it.
    """
    count = len(output_ids)
    if min(len(tokens), len(top)) < count:
        return Score(Output.UNCHECKED, f"{len(tokens)} of {count} positions were scored")
    gaps = []
    for (logprob, token_id, _), best, expected in zip(tokens[-count:], top[-count:], output_ids, strict=True):
        if token_id != expected:
            return Score(Output.UNCHECKED, f"position scored for token {token_id} instead of {expected}")
        if logprob is None or not best:
            return Score(Output.UNCHECKED, "a position of the answer was not scored")
        gaps.append(best[0][0] - logprob)
    worst = max(range(count), key=lambda index: gaps[index])
    # Not `>`: a NaN from broken KV compares false with everything and must not pass.
    wrong = [index for index, gap in enumerate(gaps) if not gap <= TOLERANCE]
    if wrong:
        first = wrong[0]
        return Score(
            Output.GARBLED,
            f"{len(wrong)} of {count} tokens are not the model's choice; "
            f"first at position {first + 1}, {gaps[first]:.2f} below the best (allowed {TOLERANCE})",
        )
    return Score(Output.SAME, f"all {count} tokens within {max(gaps[worst], 0.0):.3f} of the model's choice")
