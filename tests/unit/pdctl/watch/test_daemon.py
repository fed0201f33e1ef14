"""Small parts of the daemon; the whole runs in tests/cli and tests/serving."""

from __future__ import annotations

import msgspec
import pytest

from pdctl.errors import UsageError
from pdctl.watch.daemon import Announcer, address_of
from tests.unit.pdctl.watch.samples import START
from tests.unit.pdctl.watch.test_exporter import SIGHT


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("9108", ("127.0.0.1", 9108)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:9108", ("::1", 9108))],
)
def test_addresses_are_read(listen: str, expected: tuple[str, int]) -> None:
    """Loopback where no host is named."""
    assert address_of(listen) == expected


@pytest.mark.parametrize("listen", ["here", "127.0.0.1", "host:", "h:70000", "h:-1"])
def test_what_names_no_port_is_refused(listen: str) -> None:
    """With the form that is wanted."""
    with pytest.raises(UsageError) as raised:
        address_of(listen)
    assert "HOST:PORT" in raised.value.hint


def test_a_verdict_is_announced_once_when_it_is_confirmed() -> None:
    """With the first cause, and not at each look."""
    said: list[str] = []
    announcer = Announcer(said.append)
    announcer.show(msgspec.structs.replace(SIGHT, confirmed="unknown", confirmed_since=None))
    wedged = msgspec.structs.replace(SIGHT, confirmed="wedged", confirmed_since=START)
    announcer.show(wedged)
    announcer.show(wedged)
    assert said == ["lab: wedged; PD0305 d: stopped"]
