"""Which instances are restarted together, by the capability tables."""

from __future__ import annotations

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.diagnose.catalogue import code_of
from pdctl.diagnose.report import Cause, Impact, Report, Subject, Tool
from pdctl.errors import UsageError
from pdctl.recover.restart_set import affected_pairs, closed, seeds


def deployed(dialect: str, version: str | None = None) -> Deployment:
    """Return two prefills, two decodes and a router."""
    engines = [
        Instance(name=f"{role}-{n}", role=role, dialect=dialect, version=version, url=f"http://127.0.0.1:{n}")
        for role in (Role.PREFILL, Role.DECODE)
        for n in (0, 1)
    ]
    router = Instance(name="router", role=Role.ROUTER, dialect="smg", url="http://127.0.0.1:9")
    return Deployment(name="d", model="m", instances=(*engines, router))


def alone(name: str) -> tuple[str, ...]:
    """Return what is stopped along with an instance under a shim: nothing."""
    return ()


def test_unit_that_is_stopped_along_joins_though_it_would_survive() -> None:
    """PartOf= and Requires= act whatever an engine can; also where the peers that may not survive are left out."""

    def tied(name: str) -> tuple[str, ...]:
        return ("prefill-0",) if name == "decode-0" else ()

    found = closed(deployed("pdctl"), ["decode-0"], tied, with_victims=False)
    assert found.names == ("prefill-0", "decode-0")
    assert found.joined[0].because == "its unit is stopped along with that of decode-0"


def test_our_engine_survives_either_side() -> None:
    """Nobody joins."""
    assert closed(deployed("pdctl"), ["decode-0"], alone).names == ("decode-0",)


def test_sglang_peers_join_until_the_set_is_closed() -> None:
    """Decode alone takes every prefill with it, and these every other decode; never the router."""
    found = closed(deployed("sglang", "0.5.13"), ["decode-0"], alone)
    assert found.names == ("prefill-0", "prefill-1", "decode-0", "decode-1")
    assert [item.name for item in found.joined] == ["prefill-0", "prefill-1", "decode-1"]
    assert "sglang 0.5.13" in found.joined[0].because


def test_unknown_counts_as_no() -> None:
    """A family without a table is taken to survive nothing."""
    assert closed(deployed("homegrown"), ["prefill-1"], alone).names == (
        "prefill-0",
        "prefill-1",
        "decode-0",
        "decode-1",
    )


def test_unknown_name_is_told_with_those_there_are() -> None:
    """A typo restarts nothing."""
    with pytest.raises(UsageError, match="no instance 'decode-9'") as raised:
        closed(deployed("pdctl"), ["decode-9"], alone)
    assert raised.value.hint == "there are prefill-0, prefill-1, decode-0, decode-1, router"


def test_affected_pairs_are_those_with_a_restarted_side() -> None:
    """Of four pairs, one decode touches two."""
    names = [(prefill.name, decode.name) for prefill, decode in affected_pairs(deployed("pdctl"), ["decode-1"])]
    assert names == [("prefill-0", "decode-1"), ("prefill-1", "decode-1")]


def cause(code: str, *affected: str, confidence: str = "established", causal_role: str = "initiating") -> Cause:
    """Return a cause about some instances."""
    entry = code_of(code)
    return Cause(
        code=code, name=entry.name, label=entry.label, level=entry.level, confidence=confidence,
        subject=Subject(instance=affected[0], role=""), affected=affected, message="", causal_role=causal_role,
        observations=(), next=(), runbook="", fingerprint=code,
    )  # fmt: skip


def report(*causes: Cause, probe: tuple[dict[str, str | float | None], ...] = ()) -> Report:
    """Return a report with these causes and probes."""
    return Report(
        tool=Tool(version="0"), captured_at=None, deployment="d", verdict="wedged",
        impact=Impact(scope="total", pairs=(), basis=""), incident_id="i", checked=1, complete=True, affected=(),
        since=None, causes=causes, probe=probe, ruled_out=(), undecided=(), not_checked=(), collectors=(), timeline=(),
    )  # fmt: skip


EVERY = ("prefill-0", "prefill-1", "decode-0", "decode-1")


@pytest.mark.parametrize(("causes", "names"), [
    ((cause("PD0301", "prefill-1"),), ("prefill-1",)),
    ((cause("PD0305", "prefill-0"), cause("PD0101", "decode-1")), ("prefill-0", "decode-1")),
    ((cause("PD0101", "decode-0", "decode-1"),), ("decode-0", "decode-1")),
    ((cause("PD0801", "decode-0"),), ("router",)),
    ((cause("PD0305", "prefill-0"), cause("PD0308", "decode-0", causal_role="cascade")), ("prefill-0",)),
    ((cause("PD0305", "prefill-0", confidence="hypothesis", causal_role="unknown"),), EVERY),
    ((cause("PD0307", "decode-0"),), ("decode-0", "prefill-0", "prefill-1")),
    ((cause("PD0901", "decode-0"),), EVERY),
    ((), EVERY),
])  # fmt: skip
def test_set_begins_with_the_subjects_of_initiating_causes(causes: tuple[Cause, ...], names: tuple[str, ...]) -> None:
    """Not with what only follows, nor with hypotheses; without a cause it is every engine, never the router.

    Where one side was restarted alone, its peers keep the state that must go.
    """
    assert seeds(deployed("pdctl"), report(*causes)) == names


@pytest.mark.parametrize(("via", "status", "names"), [
    ("prefill-0 -> decode-0", None, EVERY),
    ("prefill-0 -> decode-0", 503, EVERY),
    ("prefill-0 -> decode-0", 200, ("router",)),
    ("router", 503, ("router",)),
])  # fmt: skip
def test_router_is_not_blamed_where_a_direct_request_failed_too(
    via: str, status: float | None, names: tuple[str, ...]
) -> None:
    """It only says what its workers do: a control thread that died makes `no worker` as well."""
    found = report(cause("PD0801", "router"), probe=({"via": via, "status": status},))
    assert seeds(deployed("pdctl"), found) == names
