"""Two sides that disagree about the KV they exchange: our engine says so, also where its /health does not."""

from __future__ import annotations

import json

import pytest

from pdctl.diagnose.report import Report
from pdctl.evidence.directory import evidence_of
from pdctl.evidence.redaction import Redaction
from tests.unit.pdctl.diagnose.incident import HEALTHY_GET, report
from tests.unit.pdctl.diagnose.test_own_engine import PAIR, found, health

PROBE = '[[probe]]\nat = 2026-06-19T14:29:30Z\nvia = "p/d"\ntook_ms = 30\nstatus = 503\n'
CONTRACT = {
    "dtype": "float32",
    "layers": "30",
    "layout": "layer,kv",
    "model": "a1",
    "page_size": "16",
    "protocol": "2",
    "checksums": "on",
}


def server_info(**other: str) -> str:
    """Return server_info.json of an engine whose contract has these other values."""
    return json.dumps({"version": "0.1.0", "page_size": 16, "contract": {**CONTRACT, **other}})


def failing(prefill: str, decode: str) -> Report:
    """Return the report on a pair that calls itself well and fails a request, with these /server_info."""
    infos = {"p/server_info.json": prefill, "d/server_info.json": decode}
    return report(PAIR, p__http_toml=HEALTHY_GET, d__http_toml=HEALTHY_GET, probe_toml=PROBE, **infos)


@pytest.mark.parametrize(
    ("why", "code"),
    [
        ("kv.page_size: here '16', peer '32'", "PD0201"),
        ("dtype: here 'float32', peer 'bf16'", "PD0202"),
        ("kv.ranks: prefill names no rank", "PD0203"),
        ("protocol: here '2', peer '1'", "PD0205"),
    ],
)
def test_a_peer_that_is_refused_for_a_field(why: str, code: str) -> None:
    """/health names field and values, also where no line does."""
    body = json.dumps({"status": "ok", "problems": [], "threads": {}, "refused_peers": {"d": why}})
    said = report(
        PAIR,
        p__http_toml=f"[[get]]\npath = \"/health\"\nstatus = 200\ntook_ms = 5\nbody = '''{body}'''\n",
        d__http_toml=health(),
        probe_toml=PROBE,
    )
    assert found(said)[:1] == [(code, "p")]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("page_size", "32", "PD0201"),
        ("layers", "24", "PD0201"),
        ("checksums", "off", "PD0201"),
        ("dtype", "bfloat16", "PD0202"),
        ("model", "b2", "PD0205"),
        ("protocol", "1", "PD0205"),
    ],
)
def test_contracts_that_differ(field: str, value: str, code: str) -> None:
    """Each field has its code, with both values, also where /health is 200 and says nothing."""
    said = failing(server_info(), server_info(**{field: value}))
    assert found(said)[:1] == [(code, "p")]
    assert f"{field}: p {CONTRACT[field]}, d {value}" in said.causes[0].message


def test_the_shared_archive_shows_the_difference_too() -> None:
    """The fingerprint of the model is a pseudonym there, and another one on each side."""
    files = {"topology.toml": PAIR, "p/server_info.json": server_info(), "d/server_info.json": server_info(model="b2")}
    shared = Redaction({name: text.encode() for name, text in files.items()}, b"key").files()
    prefill, decode = (item.server_info for item in evidence_of(shared).instances)
    assert prefill is not None
    assert decode is not None
    differing = {field for field in CONTRACT if prefill.contract[field] != decode.contract[field]}
    assert differing == {"model"}
    assert prefill.contract["model"] != CONTRACT["model"]


def test_the_same_contract_is_no_finding() -> None:
    """Requests that fail have another cause then."""
    said = failing(server_info(), server_info())
    assert not [code for code, _ in found(said) if code.startswith("PD02")]
