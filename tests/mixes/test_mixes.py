"""The short form: a few mixes served in the plainest way and in ways that have everything on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mixes.requests import make_mix
from tests.mixes.ways import PLAIN, Answer, Way, answers, served

MIXES = {seed: make_mix(seed) for seed in range(1, 5)}
FLAGS = ("--dtype", "float64", "--chunk-tokens", "64")


@pytest.fixture(scope="module")
def plain(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Answer]]:
    """What the plainest way answers."""
    with served(PLAIN, tiny_model_dir, tmp_path_factory.mktemp("plain"), *FLAGS) as server:
        return {seed: answers(server, mix) for seed, mix in MIXES.items()}


@pytest.mark.parametrize(
    "way",
    [
        Way(is_pair=True, schedule="overlap", ranks=2, is_caching=True),
        Way(is_pair=True, schedule="normal", ranks=1, is_caching=True),
        Way(is_pair=False, schedule="overlap", ranks=1, is_caching=True),
    ],
    ids=str,
)
def test_a_mix_gets_the_same_tokens_however_it_is_served(
    way: Way, plain: dict[int, list[Answer]], tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Greedy, sampled, dropped and forced requests at once."""
    with served(way, tiny_model_dir, tmp_path, *FLAGS) as server:
        assert {seed: answers(server, mix) for seed, mix in MIXES.items()} == plain


def test_mixes_hold_every_kind() -> None:
    """The few mixes above have requests of each kind, none of which was refused."""
    requests = [request for mix in MIXES.values() for request in mix]
    assert {request.path for request in requests} == {"/generate", "/v1/chat/completions"}
    assert any(request.leaves_after for request in requests)
    assert any(request.body.get("sampling_params", {}).get("temperature") for request in requests)
