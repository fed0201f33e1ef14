"""How long a restart waits for what is in flight."""

from __future__ import annotations

import pytest

from pdctl.recover.proposing import DRAIN_S, SILENT_DRAIN_S, drain_s
from pdctl.recover.states import Asked

ASKED = Asked(healthy=frozenset({"prefill-0", "decode-1"}), silent=frozenset({"decode-0", "decode-2"}))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("decode-0",), SILENT_DRAIN_S),
        (("decode-0", "decode-2"), SILENT_DRAIN_S),
        (("decode-0", "decode-1"), DRAIN_S),
        (("decode-0", "router"), DRAIN_S),
    ],
)
def test_only_what_may_still_finish_something_is_waited_for(names: tuple[str, ...], expected: float) -> None:
    """Who answers no request has nothing to finish; who answers one, or was not asked, may have."""
    assert drain_s(None, names, ASKED) == expected


def test_what_the_operator_wants_is_done() -> None:
    """Streams may flow where a new request does not."""
    assert drain_s(120.0, ("decode-0",), ASKED) == 120.0
