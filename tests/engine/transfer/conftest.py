"""One prefill and one decode for a whole module: rooms are told apart by their ids."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.engine.transfer.pairs import Pair, make_pair

_numbers = count(1)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    made = make_pair()
    yield made
    made.stop()


@pytest.fixture
def hasty_pair() -> Iterator[Pair]:
    """A pair whose pairing and stuck clocks run out within half a second."""
    made = make_pair(pairing_timeout_s=0.4, stuck_timeout_s=0.4)
    yield made
    made.stop()


@pytest.fixture
def room() -> int:
    """A room number that no other test uses."""
    return next(_numbers)


@pytest.fixture
def rid(room: int) -> str:
    return f"r{room}"
