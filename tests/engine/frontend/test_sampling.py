"""Sampling values: defaults, bounds, and what the context leaves."""

from __future__ import annotations

import pytest

from engine.errors import RequestError
from engine.frontend.bodies import Knobs
from engine.frontend.sampling import EXCLUSIVE, LEAST_TEMPERATURE, RANGES, Length, Limits, Logprobs, choose_sampling

LIMITS = Limits(vocab_size=100, context_tokens=50, asked_tokens=50)


def tokens(most: int | None, default: int | None = None) -> Length:
    """So many new tokens are wanted."""
    return Length(most, "max_tokens", default)


def test_defaults_are_neutral() -> None:
    """Nothing given means plain sampling at temperature 1, as long as the context allows."""
    chosen = choose_sampling(Knobs(), tokens(None), Logprobs(), 10, LIMITS)
    assert (chosen.temperature, chosen.top_p, chosen.top_k, chosen.min_p) == (1.0, 1.0, 0, 0.0)
    assert (chosen.presence_penalty, chosen.frequency_penalty, chosen.repetition_penalty) == (0.0, 0.0, 1.0)
    assert (chosen.max_tokens, chosen.prompt_logprobs, chosen.logprobs) == (40, None, False)


def test_absent_seed_is_random_and_given_seed_is_kept() -> None:
    """Two requests without a seed differ; a negative seed is a seed too."""
    unseeded = {choose_sampling(Knobs(), tokens(1), Logprobs(), 1, LIMITS).seed for _ in range(4)}
    assert len(unseeded) == 4
    assert choose_sampling(Knobs(seed=7), tokens(1), Logprobs(), 1, LIMITS).seed == 7
    assert choose_sampling(Knobs(seed=-1), tokens(1), Logprobs(), 1, LIMITS).seed == (1 << 63) - 1


@pytest.mark.parametrize("name", RANGES)
def test_bounds_hold(name: str) -> None:
    """Each bound is allowed, but for those that are said to be exclusive; beyond is refused by name."""
    low, high = RANGES[name]
    step = 1 if isinstance(low, int) else 0.001
    refused = [low - step, high + step] + ([low] if name in EXCLUSIVE else [])
    for value in refused:
        with pytest.raises(RequestError) as caught:
            choose_sampling(Knobs(**{name: value}), tokens(10), Logprobs(), 1, LIMITS)
        assert caught.value.param == name
    for value in (high, low + step if name in EXCLUSIVE else low):
        choose_sampling(Knobs(**{name: value}), tokens(10), Logprobs(), 1, LIMITS)


@pytest.mark.parametrize(
    ("given", "chosen"),
    [(1e-46, 0.0), (LEAST_TEMPERATURE / 2, 0.0), (LEAST_TEMPERATURE, LEAST_TEMPERATURE), (None, 1.0)],
)
def test_a_temperature_near_0_is_greedy(given: float | None, chosen: float) -> None:
    """Float32 may take it for 0, and logits are divided by it."""
    assert choose_sampling(Knobs(temperature=given), tokens(1), Logprobs(), 1, LIMITS).temperature == chosen


@pytest.mark.parametrize("penalty", [1e-40, 0.009])
def test_a_repetition_penalty_keeps_logits_finite(penalty: float) -> None:
    """Logits are divided by it."""
    with pytest.raises(RequestError, match=r"from 0\.01 to 10"):
        choose_sampling(Knobs(repetition_penalty=penalty), tokens(1), Logprobs(), 1, LIMITS)


def test_scoring_may_fill_the_context() -> None:
    """A prompt of exactly the context can be scored, but not continued."""
    assert choose_sampling(Knobs(), tokens(0), Logprobs(prompt_start=0), 50, LIMITS).max_tokens == 0
    with pytest.raises(RequestError, match=r"50 tokens.*holds 50"):
        choose_sampling(Knobs(), tokens(1), Logprobs(), 50, LIMITS)


def test_what_cannot_fit_is_refused_by_name() -> None:
    """A client that says how many tokens it wants gets them or hears that it cannot; a default is cut."""
    assert choose_sampling(Knobs(), tokens(40), Logprobs(), 10, LIMITS).max_tokens == 40
    with pytest.raises(RequestError, match=r"41 tokens are wanted.*10.*holds 50") as caught:
        choose_sampling(Knobs(), tokens(41), Logprobs(), 10, LIMITS)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")
    assert choose_sampling(Knobs(), tokens(None, default=41), Logprobs(), 10, LIMITS).max_tokens == 40
    assert choose_sampling(Knobs(), tokens(None, default=16), Logprobs(), 10, LIMITS).max_tokens == 16


def test_prefill_refuses_only_what_no_pool_holds() -> None:
    """The output's pages are decode's."""
    prefill = Limits(vocab_size=100, context_tokens=50, asked_tokens=70)
    assert choose_sampling(Knobs(), tokens(60), Logprobs(), 10, prefill).max_tokens == 40
    with pytest.raises(RequestError, match="holds 70"):
        choose_sampling(Knobs(), tokens(61), Logprobs(), 10, prefill)


def test_prompt_logprobs_carry_start_and_alternatives() -> None:
    """What was asked of the prompt reaches the scheduler as one pair."""
    chosen = choose_sampling(Knobs(), tokens(1), Logprobs(output=True, top=3, prompt_start=4), 10, LIMITS)
    assert (chosen.prompt_logprobs, chosen.prompt_logprobs_start, chosen.top_logprobs) == (3, 4, 3)
