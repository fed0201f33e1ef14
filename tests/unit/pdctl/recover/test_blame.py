"""Whom a report blames, and when looking may end."""

from __future__ import annotations

import msgspec
import pytest

from pdctl.recover.blame import blames_only_the_clients, is_explained
from tests.unit.pdctl.recover.test_restart_set import cause, report


@pytest.mark.parametrize(("verdict", "code", "is_enough"), [
    ("failing", "PD0102", True),
    ("degraded", "PD0102", False),
    ("degraded", "PD0305", True),
    ("failing", None, False),
])  # fmt: skip
def test_looking_ends_with_a_cause_that_says_what_to_do(verdict: str, code: str | None, is_enough: bool) -> None:
    """A crash loop explains failures at once; where nothing fails yet, a wedge may be forming beside it."""
    found = report(*[cause(code, "decode-0")] if code else [])
    assert is_explained(msgspec.structs.replace(found, verdict=verdict)) is is_enough


def test_clients_that_left_are_blamed_alone_only_where_nothing_else_is_found() -> None:
    """A request is sent first: wrong answers drive clients away too."""
    assert blames_only_the_clients(report(cause("PD0904", "router")))
    assert not blames_only_the_clients(report(cause("PD0904", "router"), cause("PD0309", "decode-0")))
    assert not blames_only_the_clients(report())
