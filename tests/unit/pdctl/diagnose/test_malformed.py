"""Answers, settings and lines that are not what they should be: each costs itself, never the report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.diagnose.events import number_of
from pdctl.evidence.urls import host_of, is_base_url, port_of
from tests.unit.pdctl.diagnose import incident as make

ROUTER = make.instance("r", "router", "smg", host=3)
DEEP = "[" * 900 + "]" * 900
BODIES = (
    '{"workers": [{"url": "http://[::1", "is_healthy": false}, {"url": "http://h:99999"}, {"url": 5}, 7]}',
    '{"data": 5}',
    '{"data": [{"id": {}}, 5]}',
    '{"workers": 5, "endpoints": 5, "missing_worker_types": 5}',
    '{"missing_worker_types": [{}, null, 5]}',
    '{"healthy_workers": [], "total_workers": {}}',
    '{"status": 5, "threads": 5, "problems": 5, "refused_peers": 5}',
    DEEP,
    '{"a":' * 400 + "1" + "}" * 400,
    "5",
    "null",
    "\\u0000",
)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("path", ["/health", "/readiness", "/workers", "/v1/models", "/server_info"])
def test_an_answer_of_another_shape_costs_itself_only(path: str, body: str) -> None:
    """Whoever gives it: an engine or a router."""
    get = f"[[get]]\npath = \"{path}\"\nstatus = 200\nbody = '''{body}'''\n"
    files = {f"{name}/http{kind}.toml": get for name in ("p", "d", "r") for kind in ("", ".prev")}
    assert make.report(make.PAIR + ROUTER, **files).checked > 0


@pytest.mark.parametrize("models", ['{"data": 5}', '{"data": {"id": 1}}', '{"data": [5]}'])
def test_a_listed_worker_whose_models_are_no_list(models: str) -> None:
    """The router lists it, so its own word on its models is looked for."""
    row = '{"url": "http://192.0.2.1:30000", "model_id": "m"}'
    files = {
        "r/http.toml": f"[[get]]\npath = \"/workers\"\nstatus = 200\nbody = '''{{\"workers\": [{row}]}}'''\n",
        "p/http.toml": f"[[get]]\npath = \"/v1/models\"\nstatus = 200\nbody = '''{models}'''\n",
    }
    assert make.report(make.PAIR + ROUTER, **files).checked > 0


SETTINGS = (
    'version = "x"\nflags = ["--prefill", "http://[::1", "²"]\n',
    'flags = ["--disaggregation-bootstrap-port", "²", "--max-running-requests", "²"]\n',
    '[env]\nA_TIMEOUT = "1.2.3"\nB_TIMEOUT_MS = "nan"\nC_TIMEOUT = ""\n',
)


@pytest.mark.parametrize("source", SETTINGS)
def test_a_setting_that_is_no_number_costs_itself_only(source: str) -> None:
    """Digits of other scripts, and texts that only look like numbers."""
    files = {f"{name}/source.toml": source for name in ("p", "d", "r")}
    assert make.report(make.PAIR + ROUTER, **files).checked > 0


LINES = (
    "GPU KV cache size: ,,, tokens",
    "Avg prompt throughput: 1.2.3 tokens/s",
    "registration for request a timed out after 1.2.3s without a push completion",
    "Could not fetch prefill parallel info from bootstrap_addr: http://[::1:99999999",
    "Request 7 KV cache transfer exceeded kv_transfer_timeout_ms (²",
)


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_cut_or_garbled_costs_itself_only(line: str) -> None:
    """As a log that was cut, or written by two processes at once."""
    log = "".join(f"[2026-06-19 14:29:0{n} TP0] {line}\n" for n in range(5))
    files = {f"{name}/log.txt": log for name in ("p", "d", "r")}
    assert make.report(make.PAIR + ROUTER, **files).checked > 0


@given(st.text())
def test_any_text_has_a_host_or_none(text: str) -> None:
    """What is no address raises nothing."""
    assert isinstance(host_of(text), str)
    assert port_of(text) is None or isinstance(port_of(text), int)
    assert isinstance(is_base_url(text), bool)
    assert number_of(text) is None or isinstance(number_of(text), float)


@pytest.mark.parametrize(("url", "is_one"), [("http://h:1", True), ("http://[::1", False), ("http://h:99999", False)])
def test_an_address_that_can_be_asked(url: str, is_one: bool) -> None:
    """A bracket that is never closed and a port that does not exist cannot be."""
    assert is_base_url(url) == is_one
