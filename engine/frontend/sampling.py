"""Sampling fields of a body to checked `SamplingParams`: ranges as a table, defaults as the API's."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from engine.errors import RequestError
from engine.frontend.bodies import Knobs
from engine.messages import SamplingParams

MAX_CHOICES = 128
"""OpenAI's limit."""
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_TOP_LOGPROBS = 20
SEED_RANGE = 1 << 63

RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 10.0),
    "top_k": (-1, 1 << 31),
    "n": (1, MAX_CHOICES),
    "min_tokens": (0, 1 << 31),
}
Number = TypeVar("Number", int, float)

EXCLUSIVE = {"top_p"}
"""Fields whose lower bound is not itself allowed."""

LEAST_TEMPERATURE = 1e-5
"""Below it an answer is greedy, as at 0. Logits would be divided by what float32 may not tell from 0."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Which logprobs are wanted; `prompt_start` None: none of the prompt."""

    output: bool = False
    top: int = 0
    prompt_start: int | None = None
    name: str = "top_logprobs"
    """The field that says how many alternatives."""


@dataclass(frozen=True, slots=True)
class Length:
    """How many new tokens a client wants; None: it did not say."""

    most: int | None
    name: str
    """The field that says so."""
    default: int | None = None
    """What the route takes for None, if there is room for it; None: as many as the context holds."""
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What fits: token ids of the vocabulary, and prompt + output tokens of one sequence."""

    vocab_size: int
    context_tokens: int
    """Here."""
    asked_tokens: int
    """May be asked for. On prefill more than fits: the pool that the output needs is decode's."""


def choose_sampling(
    knobs: Knobs,
    length: Length,
    logprobs: Logprobs,
    prompt_tokens: int,
    limits: Limits,
    grammar: str | None = None,
) -> SamplingParams:
    """Check every value and fill in the defaults.

    Raises RequestError (400) naming the field, also when more tokens are wanted than the context holds.
    """
    check_ranges(knobs)
    _check_tokens(knobs, length, logprobs, limits)
    if grammar is not None and (length.least or knobs.ignore_eos):
        raise _bad("ignore_eos" if knobs.ignore_eos else "min_tokens", "an answer of a given form ends where it ends")
    most = _most(length, prompt_tokens, limits)
    seed = secrets.randbelow(SEED_RANGE) if knobs.seed is None else knobs.seed % SEED_RANGE
    return SamplingParams(
        max_tokens=most,
        temperature=_temperature(knobs.temperature),
        top_p=_or(knobs.top_p, 1.0),
        top_k=max(_or(knobs.top_k, 0), 0),
        min_p=_or(knobs.min_p, 0.0),
        presence_penalty=_or(knobs.presence_penalty, 0.0),
        frequency_penalty=_or(knobs.frequency_penalty, 0.0),
        repetition_penalty=_or(knobs.repetition_penalty, 1.0),
        seed=seed,
        logit_bias=knobs.logit_bias or {},
        stop_token_ids=tuple(knobs.stop_token_ids or ()),
        ignore_eos=bool(knobs.ignore_eos),
        min_tokens=length.least or 0,
        grammar=grammar,
        logprobs=logprobs.output,
        top_logprobs=logprobs.top if logprobs.output else 0,
        prompt_logprobs=None if logprobs.prompt_start is None else logprobs.top,
        prompt_logprobs_start=logprobs.prompt_start or 0,
    )


def choose_stops(stop: str | list[str] | None) -> tuple[str, ...]:
    """Return the stop strings. Raises RequestError (400) on too many, too long or empty ones."""
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS:
        raise _bad("stop", f"{len(stops)} stop strings, at most {MAX_STOPS} are allowed")
    if any(not 0 < len(text) <= MAX_STOP_LENGTH for text in stops):
        raise _bad("stop", f"a stop string has 1 to {MAX_STOP_LENGTH} characters")
    return stops


def check_ranges(knobs: Knobs) -> None:
    """Raise RequestError (400) for the first value that lies outside its range."""
    for name, (low, high) in RANGES.items():
        value = getattr(knobs, name)
        if value is None:
            continue
        if not low <= value <= high or (name in EXCLUSIVE and value == low):
            bounds = f"above {low:g}, at most {high:g}" if name in EXCLUSIVE else f"from {low:g} to {high:g}"
            raise _bad(name, f"{value:g} is out of range, it must be {bounds}")
    for token_id, bias in (knobs.logit_bias or {}).items():
        if not -100 <= bias <= 100:
            raise _bad("logit_bias", f"{bias:g} for token {token_id} is out of range, it must be from -100 to 100")


def check_length(prompt_tokens: int, max_tokens: int | None, limits: Limits, at_least: bool = False) -> int:
    """Return how many tokens fit behind the prompt; `at_least`: the prompt has more than `prompt_tokens`.

    Raises RequestError (400) when the prompt does not fit, or leaves no room for a token that is wanted.
    """
    if prompt_tokens == 0:
        raise RequestError(400, "empty_prompt", "the prompt has no tokens", "prompt")
    needed = 0 if max_tokens == 0 else 1
    if prompt_tokens + needed > limits.context_tokens:
        more = "more than " if at_least else ""
        message = f"the prompt has {more}{prompt_tokens} tokens, but this model's context holds {limits.context_tokens}"
        message += " with at least one new token" if needed else ""
        raise RequestError(400, "context_length_exceeded", message + "; shorten the prompt", "prompt")
    return limits.context_tokens - prompt_tokens


def _most(length: Length, prompt_tokens: int, limits: Limits) -> int:
    """Return how many new tokens there may be."""
    left = check_length(prompt_tokens, length.most, limits)
    if length.most is None:
        return min(_or(length.default, left), left)
    if prompt_tokens + length.most > limits.asked_tokens:
        message = f"{length.name}: {length.most} tokens are wanted, but with the prompt's {prompt_tokens} this model's "
        message += f"context holds {limits.asked_tokens}; ask for fewer, or leave it out"
        raise RequestError(400, "context_length_exceeded", message, length.name)
    return min(length.most, left)


def _check_tokens(knobs: Knobs, length: Length, logprobs: Logprobs, limits: Limits) -> None:
    if length.most is not None and length.most < 0:
        raise _bad(length.name, f"{length.most} is negative")
    most = _or(length.most, limits.context_tokens)
    if length.least is not None and not 0 <= length.least <= most:
        raise _bad("min_tokens", f"{length.least} is not from 0 to {length.name}")
    if not 0 <= logprobs.top <= MAX_TOP_LOGPROBS:
        raise _bad(logprobs.name, f"{logprobs.top} is out of range, it must be from 0 to {MAX_TOP_LOGPROBS}")
    for name, ids in (("stop_token_ids", knobs.stop_token_ids), ("logit_bias", knobs.logit_bias)):
        check_token_ids(ids or (), name, limits.vocab_size)


def check_token_ids(ids: Iterable[int], name: str, vocab_size: int) -> None:
    """Raise RequestError (400) unless every id is in the vocabulary."""
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise _bad(name, f"token id {token_id} is not in the model's vocabulary of {vocab_size}")


def _temperature(given: float | None) -> float:
    chosen = _or(given, 1.0)
    return chosen if chosen >= LEAST_TEMPERATURE else 0.0


def _or(value: Number | None, default: Number) -> Number:
    return default if value is None else value


def _bad(name: str, message: str) -> RequestError:
    return RequestError(400, "invalid_value", f"{name}: {message}", name)
