"""NVIDIA Dynamo: frontends and workers. Measured on 1.6.1 with mock engines."""

from __future__ import annotations

from pdctl.dialects.answers import Field, Label
from pdctl.dialects.family import Capability, Claim, Dialect, Kind, Ratio, Sign, Support

_ABORT = Claim(
    Capability.ABORT_SAFE,
    Support.UNKNOWN,
    "held back until the first token, because an abort in mid-transfer can crash the engine (1.6.1, source)",
)
_COMPONENT = "dynamo_component_requests_total"

FRONTEND = Dialect(
    name="dynamo",
    kind=Kind.ROUTER,
    signs=(Sign("/metrics", series="dynamo_frontend_"),),
    role=(),
    model=(
        Label("/metrics", "dynamo_frontend_model_ready", "model", nonzero=True),
        Field("/v1/models", ("data", 0, "id")),
    ),
    claims=(_ABORT,),
)

WORKER = Dialect(
    name="dynamo",
    kind=Kind.ENGINE,
    signs=(Sign("/metrics", series="dynamo_component_"),),
    role=(Label("/metrics", _COMPONENT, "dynamo_component"),),
    # A "backend" or "decode" component decodes; with no prefill component beside it, it does both.
    roles={"prefill": "prefill", "decode": "decode", "backend": "decode"},
    roles_alone={"backend": "unified"},
    model=(Label("/metrics", "vllm:num_requests_running", "model_name"),),
    kv_use=(
        Ratio("/metrics", series="vllm:kv_cache_usage_perc"),
        Ratio("/metrics", series="sglang:token_usage"),
    ),
    claims=(
        _ABORT,
        Claim(
            Capability.SURVIVES_PREFILL_RESTART,
            Support.UNKNOWN,
            "seen with mock engines only, which move no KV (1.6.1)",
        ),
        Claim(
            Capability.SURVIVES_DECODE_RESTART,
            Support.UNKNOWN,
            "seen with mock engines only, which move no KV (1.6.1)",
        ),
    ),
)
