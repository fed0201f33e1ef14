"""What nobody looked at is unknown: no predicate is false for want of evidence."""

from __future__ import annotations

import pytest

from pdctl.diagnose.answer import Kind
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes import ANALYZERS
from pdctl.diagnose.judgement import judge
from tests.unit.pdctl.diagnose import incident as make

_TOPOLOGIES = {
    "pair": make.PAIR,
    "unified": make.instance("e", "unified", tp=8),
    "vllm": make.instance("p", "prefill", "vllm") + make.instance("d", "decode", "vllm", host=2),
    "router": make.instance("r", "router", "smg") + make.PAIR,
    "nobody": "",
}
_KNOWN = (Kind.TOPOLOGY, Kind.SOURCE)
"""What a topology tells: families, sizes, transports."""


@pytest.mark.parametrize("name", _TOPOLOGIES)
def test_a_topology_alone_denies_nothing(name: str) -> None:
    """Instances are named, and nothing was collected of them."""
    judged = judge(Case(make.evidence(_TOPOLOGIES[name])), ANALYZERS)
    denied = [
        (item.code.code, observation.answer.text)
        for item in judged
        for observation in item.observations
        if observation.answer.is_false and observation.answer.kind not in _KNOWN
    ]
    assert denied == []


@pytest.mark.parametrize("name", _TOPOLOGIES)
def test_a_topology_alone_names_no_cause(name: str) -> None:
    """It abstains, and says so."""
    report = make.report(_TOPOLOGIES[name])
    assert (report.firm, report.verdict) == ((), "unknown")
