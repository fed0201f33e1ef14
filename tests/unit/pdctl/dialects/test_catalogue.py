"""Families are recognised by what they answer, and say what they survive. Excerpts of real answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.dialects.answers import Answers, samples
from pdctl.dialects.catalogue import capability, recognise
from pdctl.dialects.family import Capability, Dialect, Kind, Support, first

SMG_WORKERS = b"""{"workers":[{"id":"01a2","model_id":"stub","url":"http://127.0.0.1:42902","worker_type":"decode",
"connection_mode":"http","runtime_type":"sglang","is_healthy":true}],"total":1,
"stats":{"prefill_count":0,"decode_count":1,"regular_count":0}}"""
SMG_UNKNOWN = b'{"error":{"type":"invalid_request_error","code":"unknown_url","message":"Invalid URL (GET /version)"}}'
VLLM_ROUTER_WORKERS = b"""{"workers":[{"url":"http://127.0.0.1:42902","model_id":"unknown","worker_type":"decode",
"is_healthy":true,"load":0,"connection_mode":"Http","priority":50,"cost":1.0}],"total":1,
"stats":{"prefill_count":0,"decode_count":1,"regular_count":0}}"""
SGLANG_ROUTER_WORKERS = b"""{"workers":[],"total":0,"stats":{"prefill_count":0,"decode_count":0,"regular_count":0}}"""
MODELS = b'{"object":"list","data":[{"id":"smol","object":"model"}]}'
SGLANG_INFO = json.dumps(
    {
        "disaggregation_mode": "prefill",
        "disaggregation_bootstrap_port": 8998,
        "disaggregation_transfer_backend": "nixl",
        "served_model_name": "stub",
        "tp_size": 4,
        "version": "0.5.14",
        "internal_states": [{}],
    }
).encode()
VLLM_METRICS = b"""# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smol"} 0.25
vllm:num_requests_running{engine="0",model_name="smol"} 0.0
"""
DYNAMO_FRONTEND = b"""# HELP dynamo_frontend_model_ready Whether the frontend can route
dynamo_frontend_model_ready{model="gone"} 0
dynamo_frontend_model_ready{model="smol"} 1
"""
DYNAMO_PREFILL = b"""dynamo_component_requests_total{dynamo_component="prefill",dynamo_endpoint="generate",\
dynamo_namespace="dynamo",worker_id="69e764f36deec01d"} 4
vllm:num_requests_running{model_name="smol"} 0
"""
OURS_INFO = json.dumps(
    {
        "engine": "pdengine",
        "version": "0.1.0",
        "incarnation": "ab" * 16,
        "disaggregation_mode": "prefill",
        "disaggregation_bootstrap_port": 8998,
        "served_model_name": "smollm2",
        "tp_size": 1,
    }
).encode()

CASES: dict[str, tuple[Answers, str, Kind, str | None]] = {
    "smg": (
        {"/workers": SMG_WORKERS, "/version": SMG_UNKNOWN, "/get_server_info": SGLANG_INFO},
        "smg",
        Kind.ROUTER,
        None,
    ),
    "smg without workers": ({"/workers": b'{"workers":[]}', "/version": SMG_UNKNOWN}, "smg", Kind.ROUTER, None),
    "sglang-router 0.3.2": ({"/workers": SGLANG_ROUTER_WORKERS, "/version": b""}, "smg", Kind.ROUTER, None),
    "vllm-router": (
        {
            "/workers": VLLM_ROUTER_WORKERS,
            "/list_workers": b'{"urls":["http://127.0.0.1:42902"]}',
            "/version": b"Only POST requests are supported for transparent proxy",
            "/get_server_info": SGLANG_INFO,
        },
        "vllm-router",
        Kind.ROUTER,
        None,
    ),
    "sglang": ({"/server_info": SGLANG_INFO, "/v1/models": MODELS}, "sglang", Kind.ENGINE, "prefill"),
    "sglang before 0.5.6": ({"/get_server_info": SGLANG_INFO}, "sglang", Kind.ENGINE, "prefill"),
    "vllm": ({"/metrics": VLLM_METRICS, "/version": b'{"version":"0.33.0"}'}, "vllm", Kind.ENGINE, None),
    "dynamo frontend": ({"/metrics": DYNAMO_FRONTEND, "/v1/models": MODELS}, "dynamo", Kind.ROUTER, None),
    "dynamo worker": ({"/metrics": DYNAMO_PREFILL}, "dynamo", Kind.ENGINE, "prefill"),
    "ours": ({"/server_info": OURS_INFO, "/metrics": b"pdengine_up 1\n"}, "pdctl", Kind.ENGINE, "prefill"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_family_is_recognised(case: str) -> None:
    """A router is not taken for the worker whose answers it passes on, nor Dynamo or ours for what they resemble."""
    answers, name, kind, role = CASES[case]
    found = recognise(answers)
    assert found is not None
    assert (found.name, found.kind) == (name, kind)
    assert found.roles.get(str(first(found.role, answers))) == role


@pytest.mark.parametrize("body", [b"", b"<html>nginx</html>", b'{"detail":"Not Found"}', b"[1,2", b"\xff\x00", b"null"])
def test_other_servers_are_not_recognised(body: bytes) -> None:
    """A web server, an empty answer or broken JSON is no engine."""
    paths = ("/version", "/list_workers", "/workers", "/metrics", "/server_info", "/get_server_info", "/v1/models")
    assert recognise(dict.fromkeys(paths, body)) is None


def found_in(case: str) -> tuple[Dialect, Answers]:
    answers = CASES[case][0]
    found = recognise(answers)
    assert found is not None
    return found, answers


def test_details_come_from_the_tables() -> None:
    """Version, model, port, tp and transfer stand where the family keeps them."""
    sglang, answers = found_in("sglang")
    places = (sglang.version, sglang.model, sglang.bootstrap_port, sglang.tp, sglang.transfer)
    assert [first(place, answers) for place in places] == ["0.5.14", "smol", 8998, 4, "nixl"]


def test_model_that_is_not_ready_is_passed_over() -> None:
    """Of Dynamo's models the one that can be routed counts."""
    frontend, answers = found_in("dynamo frontend")
    assert first(frontend.model, answers) == "smol"


def test_kv_use_is_read_from_gauge_or_report() -> None:
    """The used share comes from a gauge, or from two numbers."""
    vllm, answers = found_in("vllm")
    assert vllm.kv_use[0].find(answers) == 0.25
    ours, _ = found_in("ours")
    report = b'{"kv_tokens_used": 300, "kv_tokens_total": 400}'
    assert ours.kv_use[0].find({"/v1/loads": report}) == 0.75
    assert ours.kv_use[0].find({"/v1/loads": b'{"kv_tokens_used": 0, "kv_tokens_total": 0}'}) is None


def test_kv_use_of_the_fullest_rank_counts() -> None:
    """SGLang reports each data-parallel rank."""
    sglang, _ = found_in("sglang")
    report = b'{"loads": [{"dp_rank": 0, "token_usage": 0.5}, {"dp_rank": 1, "token_usage": 0.97}, {}]}'
    assert sglang.kv_use[0].find({"/v1/loads": report}) == 0.97
    assert sglang.kv_use[0].find({"/v1/loads": b'{"loads": []}'}) is None


@pytest.mark.parametrize("version", ["0.5.13", "0.5.14", "0.5.15.post1"])
def test_abort_kills_sglang_with_nixl(version: str) -> None:
    """0.5.13 to 0.5.15 with NIXL do not survive an abort, and the source is named."""
    support, source = capability("sglang", Kind.ENGINE, Capability.ABORT_SAFE, version, "nixl")
    assert support is Support.NO
    assert "30301" in source


@pytest.mark.parametrize(
    ("dialect", "version"),
    [
        ("sglang", "0.5.16"),
        ("sglang", "0.5.23"),
        ("sglang", None),
        ("vllm", "0.33.0"),
        ("dynamo", "1.6.1"),
        ("trtllm", "1"),
    ],
)
def test_nobody_else_is_known_to_be_abort_safe(dialect: str, version: str | None) -> None:
    """Only our engine is `yes`; a fix of one cause is no proof, and no table is no proof either."""
    assert capability(dialect, Kind.ENGINE, Capability.ABORT_SAFE, version)[0] is not Support.YES


@pytest.mark.parametrize("ability", list(Capability))
def test_our_engine_survives_all(ability: Capability) -> None:
    """Our engine survives aborts and one-sided restarts, in any version."""
    assert capability("pdctl", Kind.ENGINE, ability, "source")[0] is Support.YES


def test_transfer_backend_decides() -> None:
    """A decode restart is survived with Mooncake, and not with NIXL in 0.5.18."""
    restart = Capability.SURVIVES_DECODE_RESTART
    assert capability("sglang", Kind.ENGINE, restart, "0.5.18", "mooncake")[0] is Support.YES
    assert capability("sglang", Kind.ENGINE, restart, "0.5.18", "nixl")[0] is Support.NO
    assert capability("sglang", Kind.ENGINE, restart, "0.5.18")[0] is Support.UNKNOWN


@given(st.binary(), st.sampled_from(["/metrics", "/server_info", "/workers", "/version"]))
def test_any_bytes_are_read_without_harm(body: bytes, path: str) -> None:
    """Whatever a stranger answers, recognising and looking things up raises nothing."""
    found = recognise({path: body})
    assert found is None or found.recognises({path: body})
    assert all(isinstance(sample.value, float) for sample in samples(body, "x"))


def test_samples_are_of_exactly_one_series() -> None:
    """A longer name with the same beginning is another series; escaped quotes stay inside their label."""
    text = b'# HELP x help\nx{a="1",b="q\\"}"} 2.5\nx_total{a="2"} 9\nx 1e3\nx broken\n'
    found = list(samples(text, "x"))
    assert [(sample.labels.get("a"), sample.value) for sample in found] == [("1", 2.5), (None, 1000.0)]
