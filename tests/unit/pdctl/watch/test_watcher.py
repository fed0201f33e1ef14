"""A verdict counts when two consecutive judgements agree on it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pdctl.watch.watcher import Confirmation
from tests.unit.pdctl.watch.samples import START


def confirmed(*verdicts: str) -> tuple[str, float | None]:
    """Return what is confirmed after judgements two seconds apart, and since which second."""
    confirmation = Confirmation()
    for number, verdict in enumerate(verdicts):
        confirmation.judge(verdict, START + timedelta(seconds=2 * number))
    since = confirmation.since
    return confirmation.verdict, None if since is None else (since - START).total_seconds()


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((), ("unknown", None)),
        (("healthy",), ("unknown", None)),
        (("healthy", "healthy"), ("healthy", 0)),
        (("healthy", "healthy", "wedged"), ("healthy", 0)),
        (("healthy", "healthy", "wedged", "healthy", "wedged"), ("healthy", 0)),
        (("healthy", "healthy", "wedged", "wedged"), ("wedged", 4)),
        (("wedged", "wedged", "wedged", "unknown"), ("wedged", 0)),
        (("wedged", "wedged", "unknown", "unknown", "wedged"), ("unknown", 4)),
    ],
)
def test_one_odd_judgement_changes_nothing(verdicts: tuple[str, ...], expected: tuple[str, float | None]) -> None:
    """The confirmed verdict, since the first judgement that said so."""
    assert confirmed(*verdicts) == expected
