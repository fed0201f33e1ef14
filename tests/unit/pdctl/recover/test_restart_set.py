"""Which instances are restarted together, by the capability tables."""

from __future__ import annotations

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import UsageError
from pdctl.recover.restart_set import affected_pairs, closed


def deployed(dialect: str, version: str | None = None) -> Deployment:
    """Return two prefills, two decodes and a router."""
    engines = [
        Instance(name=f"{role}-{n}", role=role, dialect=dialect, version=version, url=f"http://127.0.0.1:{n}")
        for role in (Role.PREFILL, Role.DECODE)
        for n in (0, 1)
    ]
    router = Instance(name="router", role=Role.ROUTER, dialect="smg", url="http://127.0.0.1:9")
    return Deployment(name="d", model="m", instances=(*engines, router))


def test_our_engine_survives_either_side() -> None:
    """Nobody joins."""
    assert closed(deployed("pdctl"), ["decode-0"]).names == ("decode-0",)


def test_sglang_peers_join_until_the_set_is_closed() -> None:
    """Decode alone takes every prefill with it, and these every other decode; never the router."""
    found = closed(deployed("sglang", "0.5.13"), ["decode-0"])
    assert found.names == ("prefill-0", "prefill-1", "decode-0", "decode-1")
    assert [item.name for item in found.joined] == ["prefill-0", "prefill-1", "decode-1"]
    assert "sglang 0.5.13" in found.joined[0].because


def test_unknown_counts_as_no() -> None:
    """A family without a table is taken to survive nothing."""
    assert closed(deployed("homegrown"), ["prefill-1"]).names == ("prefill-0", "prefill-1", "decode-0", "decode-1")


def test_unknown_name_is_told_with_those_there_are() -> None:
    """A typo restarts nothing."""
    with pytest.raises(UsageError, match="no instance 'decode-9'") as raised:
        closed(deployed("pdctl"), ["decode-9"])
    assert raised.value.hint == "there are prefill-0, prefill-1, decode-0, decode-1, router"


def test_affected_pairs_are_those_with_a_restarted_side() -> None:
    """Of four pairs, one decode touches two."""
    names = [(prefill.name, decode.name) for prefill, decode in affected_pairs(deployed("pdctl"), ["decode-1"])]
    assert names == [("prefill-0", "decode-1"), ("prefill-1", "decode-1")]
