"""How long an instance will be away, by what is on record of it."""

from __future__ import annotations

import pytest

from pdctl.recover.ledger import Entry, Recovery, Step
from pdctl.recover.states import start_to_ready_s


def recovery(name: str, **took_s: float | None) -> Recovery:
    """Return a recovery whose instances were ready after so many seconds; None: not known."""
    entries = [
        Entry(recovery=name, at=0.0, step=Step.READY, by="x", instance=one.replace("_", "-"), took_s=took)
        for one, took in took_s.items()
    ]
    return Recovery(name, tuple(entries))


HISTORY = (
    recovery("r1", prefill_0=9.0, decode_0=30.0),
    recovery("r2", decode_0=7.0),
    recovery("r3", router=1.0),
    recovery("r4", decode_0=None),
)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("prefill-0",), 9.0),
        (("decode-0",), 7.0),
        (("prefill-0", "decode-0"), 9.0),
        (("prefill-0", "decode-1"), None),
        ((), 0.0),
    ],
)
def test_outage_is_the_last_start_to_ready_of_the_slowest(names: tuple[str, ...], expected: float | None) -> None:
    """The newest that is known of each; where one of them never started on record, nothing is promised."""
    assert start_to_ready_s(HISTORY, names) == expected
