"""Our own engine."""

from __future__ import annotations

from pdctl.dialects.answers import Field
from pdctl.dialects.family import Ask, Capability, Claim, Dialect, Kind, Pairing, Ratio, Sign, Support

_INFO = "/server_info"
_ROOMS = "a room ends on both sides, and decode fences its own reads (ARCHITECTURE.md, life of a request)"
_INCARNATION = "a restarted peer is a new incarnation; rooms of the old one fail on their own"

PDCTL = Dialect(
    name="pdctl",
    kind=Kind.ENGINE,
    signs=(Sign("/metrics", series="pdengine_"), Sign(_INFO, ("incarnation",))),
    version=(Field(_INFO, ("version",)),),
    role=(Field(_INFO, ("disaggregation_mode",)), Field(_INFO, ("role",))),
    roles={"prefill": "prefill", "decode": "decode", "unified": "unified", "null": "unified"},
    model=(Field(_INFO, ("served_model_name",)), Field("/v1/models", ("data", 0, "id"))),
    bootstrap_port=(Field(_INFO, ("disaggregation_bootstrap_port",)), Field(_INFO, ("bootstrap_port",))),
    tp=(Field(_INFO, ("tp_size",)),),
    kv_use=(Ratio("/v1/loads", used=("kv_tokens_used",), total=("kv_tokens_total",)),),
    ask=Ask.GENERATE,
    pairing=Pairing.ROOM,
    abort_path="/abort_request",
    claims=(
        Claim(Capability.ABORT_SAFE, Support.YES, _ROOMS),
        Claim(Capability.SURVIVES_PREFILL_RESTART, Support.YES, _INCARNATION),
        Claim(Capability.SURVIVES_DECODE_RESTART, Support.YES, _INCARNATION),
    ),
)
