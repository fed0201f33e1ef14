"""Choosing tokens, on distributions small enough to work out by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.messages import FinishReason, SamplingParams
from engine.model.sampling import Fault, SamplingState, sample, uniform

PROBABILITIES = [0.05, 0.5, 0.15, 0.3]
LOGITS = [math.log(one) for one in PROBABILITIES]
EOS = (3,)


def state(*output: int, prompt: tuple[int, ...] = (0,), **params: object) -> SamplingState:
    """Return a state after some output; greedy unless told otherwise."""
    made = SamplingState(SamplingParams(**{"max_tokens": 100, "temperature": 0.0} | params), prompt, EOS)
    for token_id in output:
        made.record(token_id)
    return made


def choose(logits: list[float], *states: SamplingState) -> list[int]:
    """Return the choice of each state from the same logits."""
    rows = torch.tensor([logits] * len(states))
    return [chosen.token_id for chosen in sample(rows, states)]


def drawn(count: int, **params: object) -> Counter[int]:
    """Count what `count` seeds draw from PROBABILITIES."""
    states = [state(temperature=1.0, seed=seed, **params) for seed in range(count)]
    return Counter(choose(LOGITS, *states))


def test_zero_temperature_takes_the_best() -> None:
    """The best logit wins, and the logits are left as they were."""
    logits = torch.tensor([LOGITS])
    assert [chosen.token_id for chosen in sample(logits, [state()])] == [1]
    assert logits.tolist() == torch.tensor([LOGITS]).tolist()


def test_draws_follow_the_distribution() -> None:
    """4,000 seeds: each frequency within 4 standard deviations (0.032 at most) of its probability."""
    counts = drawn(4000)
    for token_id, probability in enumerate(PROBABILITIES):
        assert counts[token_id] / 4000 == pytest.approx(probability, abs=0.032)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(-(2**63), 2**64), position=st.integers(0, 5))
def test_a_draw_is_the_inverse_of_the_cumulative_distribution(seed: int, position: int) -> None:
    """The token is the first whose cumulative probability exceeds the number of (seed, position)."""
    number, bounds = uniform(seed, position), [0.05, 0.55, 0.7, 1.0]
    assume(all(abs(number - bound) > 1e-6 for bound in bounds))
    expected = sum(number > bound for bound in bounds)
    assert choose(LOGITS, state(*[0] * position, temperature=1.0, seed=seed)) == [expected]


def test_uniform_numbers_spread_over_the_unit_interval() -> None:
    """Ten thousand numbers of neighbouring seeds and positions fill ten bins evenly, without repeating."""
    numbers = [uniform(seed, position) for seed in range(100) for position in range(100)]
    assert len(set(numbers)) == 10_000
    bins = Counter(int(number * 10) for number in numbers)
    assert sorted(bins) == list(range(10))
    assert all(880 < count < 1120 for count in bins.values())


def test_temperature_sharpens() -> None:
    """At 0.5 probabilities are squared: 0.25 of 0.365 for the best token."""
    assert drawn(4000)[1] / 4000 == pytest.approx(0.5, abs=0.032)
    states = [state(temperature=0.5, seed=seed) for seed in range(4000)]
    assert Counter(choose(LOGITS, *states))[1] / 4000 == pytest.approx(0.25 / 0.365, abs=0.03)


def test_a_tiny_temperature_is_greedy() -> None:
    """Nothing overflows on the way to certainty."""
    assert choose([1000.0, -1000.0, 999.0], state(temperature=1e-30)) == [0]


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.0}, {1}),
        ({"top_p": 0.45}, {1}),
        ({"top_p": 0.75}, {1, 3}),
        ({"top_p": 0.9}, {1, 2, 3}),
        ({"min_p": 0.2}, {1, 2, 3}),
        ({"min_p": 0.5}, {1, 3}),
        ({"min_p": 1.0}, {1}),
        # Of the two that top-k keeps, the best has 0.625: enough for 0.6, which it is not of all four.
        ({"top_k": 2, "top_p": 0.6}, {1}),
        ({"top_p": 0.9, "min_p": 0.5}, {1, 3}),
    ],
)
def test_filters_keep_the_right_tokens(params: dict[str, float], kept: set[int]) -> None:
    """Of 300 draws every kept token occurs, and no other."""
    assert set(drawn(300, **params)) == kept


def test_a_nucleus_may_be_wide() -> None:
    """Half the mass of 4,096 nearly equal tokens is 2,048 of them: more than the first look takes."""
    logits = [-index * 1e-7 for index in range(4096)]
    chosen = choose(logits, *[state(temperature=1.0, seed=seed, top_p=0.5) for seed in range(150)])
    assert max(chosen) < 2060
    assert sum(one > 1024 for one in chosen) > 40


def test_the_batch_does_not_matter() -> None:
    """Each sequence draws alone what it draws among others with other parameters."""
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(4))
    make = [
        lambda: state(temperature=1.0, seed=5),
        lambda: state(temperature=0.7, seed=5, top_p=0.8),
        lambda: state(),
        lambda: state(7, 8, temperature=1.3, seed=9, top_k=40, frequency_penalty=0.5),
        lambda: state(logprobs=True, top_logprobs=2),
        lambda: state(3, temperature=1.0, seed=5, min_p=0.1, logit_bias={4: 2.0}),
    ]
    together = sample(logits, [one() for one in make])
    alone = [sample(logits[index : index + 1], [one()])[0] for index, one in enumerate(make)]
    assert together == alone


def test_a_rebuilt_state_goes_on_the_same() -> None:
    """Decode, with prompt and first token only, chooses what the first engine would have chosen."""
    logits = torch.randn(8, 50, generator=torch.Generator().manual_seed(8))
    params = {"temperature": 1.0, "seed": 3, "repetition_penalty": 1.3, "presence_penalty": 0.4}
    one = state(prompt=(4, 5), **params)
    for row in logits:
        rebuilt = state(*one.output_ids, prompt=(4, 5), **params)
        chosen = sample(row[None], [one])
        assert sample(row[None], [rebuilt]) == chosen
        one.record(chosen[0].token_id)


def adjusted(logits: list[float], made: SamplingState) -> list[float]:
    """Return the logits that the state leaves."""
    found: list[float] = made.adjust(torch.tensor(logits)).tolist()
    return found


def test_repetition_penalty_divides_or_multiplies() -> None:
    """Tokens of prompt and output: positive logits are divided, negative multiplied; others stay."""
    made = state(1, prompt=(0,), repetition_penalty=2.0)
    assert adjusted([4.0, -4.0, 4.0, -4.0], made) == [2.0, -8.0, 4.0, -4.0]


def test_presence_and_frequency_count_output_only() -> None:
    """Token 1 twice, token 2 once, token 0 in the prompt only: 0.5 for being there, 0.25 for each time."""
    made = state(1, 2, 1, prompt=(0, 0), presence_penalty=0.5, frequency_penalty=0.25)
    assert adjusted([1.0, 1.0, 1.0, 1.0], made) == [1.0, 0.0, 0.25, 1.0]


def test_penalties_keep_up_with_recorded_tokens() -> None:
    """A token recorded after the first look counts at the next one."""
    made = state(frequency_penalty=1.0)
    assert adjusted([0.0, 0.0], made) == [0.0, 0.0]
    made.record(1)
    assert adjusted([0.0, 0.0], made) == [0.0, -1.0]


def test_bias_is_added() -> None:
    """A bias can make or break a token."""
    assert choose(LOGITS, state(logit_bias={0: 100.0}), state(logit_bias={1: -100.0})) == [0, 3]


def test_end_tokens_are_barred_until_min_tokens() -> None:
    """End and stop tokens cannot be chosen before, not even by bias, and can after."""
    params = {"min_tokens": 2, "stop_token_ids": (1,), "logit_bias": {3: 50.0}}
    assert choose(LOGITS, state(2, **params), state(2, 2, **params)) == [2, 3]


def test_ignored_end_tokens_are_not_barred() -> None:
    """With ignore_eos an end token is a token like others, at any time."""
    assert choose([0.0, 0.0, 0.0, 9.0], state(min_tokens=2, ignore_eos=True)) == [3]


def test_logprobs_are_those_of_the_model() -> None:
    """Temperature, bias and filters do not touch them; alternatives come best first."""
    made = state(temperature=2.0, logit_bias={0: 100.0}, top_k=1, logprobs=True, top_logprobs=2)
    chosen = sample(torch.tensor([[one + 5 for one in LOGITS]]), [made])[0]
    assert chosen.token_id == 0
    assert chosen.logprob is not None
    assert chosen.logprob.token_id == 0
    assert chosen.logprob.logprob == pytest.approx(math.log(0.05), abs=1e-5)
    assert [token_id for token_id, _ in chosen.logprob.top] == [1, 3]
    assert [value for _, value in chosen.logprob.top] == pytest.approx([math.log(0.5), math.log(0.3)], abs=1e-5)


def test_only_those_who_ask_get_logprobs() -> None:
    """Without `logprobs` none; without alternatives an empty list."""
    first, second = sample(torch.tensor([LOGITS] * 2), [state(), state(logprobs=True)])
    assert first.logprob is None
    assert second.logprob is not None
    assert second.logprob.top == []


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_are_told_and_spoil_no_neighbour(wrong: float, temperature: float) -> None:
    """A row with NaN or infinity is marked; the row beside it is chosen as if alone."""
    logits = torch.tensor([[0.0, wrong, 0.0, 0.0], LOGITS])
    states = [state(temperature=temperature, top_p=0.9), state(temperature=temperature, seed=4, top_p=0.9)]
    broken, sound = sample(logits, states)
    assert broken.fault is Fault.BROKEN_LOGITS
    assert sound == sample(logits[1:], states[1:])[0]
    assert sound.fault is None


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 2}])
@pytest.mark.parametrize(
    "params",
    [
        {"stop_token_ids": (0, 1, 2, 3), "min_tokens": 1},
        {"repetition_penalty": 1e-45, "prompt": (0, 1, 2)},
    ],
)
def test_a_request_that_leaves_no_token_fails_alone(
    params: dict[str, object], filters: dict[str, float], temperature: float
) -> None:
    """No id is invented where what it asks for bars every token, or where its penalties are no numbers."""
    logits = torch.tensor([[0.5, 1.0, 0.25, 0.125], LOGITS])
    states = [state(temperature=temperature, **filters, **params), state(temperature=temperature, seed=4, **filters)]
    none, sound = sample(logits, states)
    assert none.fault is Fault.NO_TOKEN_LEFT
    assert 0 <= none.token_id < 4
    assert sound == sample(logits[1:], states[1:])[0]
    assert sound.fault is None


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}])
def test_a_temperature_that_float32_takes_for_0_invents_no_token(filters: dict[str, float]) -> None:
    """0 / 0 is no distribution to draw from. The API lets no such temperature through."""
    (chosen,) = sample(torch.tensor([LOGITS]), [state(temperature=1e-46, **filters)])
    assert chosen.fault is Fault.NO_TOKEN_LEFT
    assert 0 <= chosen.token_id < 4


@pytest.mark.parametrize(
    ("output", "params", "expected"),
    [
        ((0,), {}, None),
        ((0, 3), {}, FinishReason.STOP),
        ((0, 3), {"ignore_eos": True}, None),
        ((0, 1), {"stop_token_ids": (1,)}, FinishReason.STOP),
        ((0, 1), {"stop_token_ids": (1,), "ignore_eos": True}, FinishReason.STOP),
        ((0, 0), {"max_tokens": 2}, FinishReason.LENGTH),
        ((0, 3), {"max_tokens": 2}, FinishReason.STOP),
        ((0, 3), {"max_tokens": 2, "ignore_eos": True}, FinishReason.LENGTH),
        ((3,), {"min_tokens": 1}, None),
        ((0, 3), {"min_tokens": 1}, FinishReason.STOP),
    ],
)
def test_why_an_answer_ends(output: tuple[int, ...], params: dict[str, object], expected: FinishReason | None) -> None:
    """The last of the recorded tokens ends the answer, or not."""
    assert state(*output, **params).ends.finish(output[-1], len(output)) == expected
