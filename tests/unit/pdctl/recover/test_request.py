"""What a recovery's outcome is to whoever called: the exit code."""

from __future__ import annotations

import pytest

from pdctl.recover.ledger import Outcome
from pdctl.recover.request import Result

CODES = {
    None: 0,
    Outcome.RECOVERED: 0,
    Outcome.NOT_VERIFIED: 1,
    Outcome.ROUTER: 1,
    Outcome.NOT_READY: 1,
    Outcome.UNKILLABLE: 1,
    Outcome.ABANDONED: 1,
    Outcome.REFUSED: 5,
    Outcome.CANCELLED: 130,
}


@pytest.mark.parametrize(("outcome", "code"), CODES.items())
def test_only_proven_service_is_success(outcome: Outcome | None, code: int) -> None:
    """5 where somebody else had restarted a target; a dry run is no failure."""
    assert Result(deployment="d", recovery="r", outcome=outcome).exit_code == code


def test_every_end_of_a_recovery_has_its_code() -> None:
    """`started` is the end of an execution, never of a recovery."""
    assert set(Outcome) - {Outcome.STARTED} == set(CODES) - {None}
