"""SGLang workers. Facts were read in the releases 0.4.7 to 0.5.23 and in the threads that are named."""

from __future__ import annotations

from pdctl.dialects.answers import Field, Label
from pdctl.dialects.family import Capability, Claim, Dialect, Kind, Pairing, Ratio, Sign, Support
from pdctl.dialects.versions import VersionRange

_INFO = "/server_info"
_OLD_INFO = "/get_server_info"  # before 0.5.6; still routed later


def _info(key: str) -> tuple[Field, Field]:
    return Field(_INFO, (key,)), Field(_OLD_INFO, (key,))


_ABORT = Capability.ABORT_SAFE
_PREFILL = Capability.SURVIVES_PREFILL_RESTART
_DECODE = Capability.SURVIVES_DECODE_RESTART

SGLANG = Dialect(
    name="sglang",
    kind=Kind.ENGINE,
    signs=(
        Sign("/metrics", series="sglang:"),
        Sign(_INFO, ("disaggregation_mode",)),
        Sign(_OLD_INFO, ("disaggregation_mode",)),
        Sign(_INFO, ("internal_states",)),
        Sign(_OLD_INFO, ("internal_states",)),
    ),
    version=_info("version"),
    role=(*_info("disaggregation_mode"), Label("/metrics", "sglang:num_running_reqs", "engine_type")),
    roles={"prefill": "prefill", "decode": "decode", "null": "unified", "unified": "unified"},
    model=(
        Field("/v1/models", ("data", 0, "id")),
        *_info("served_model_name"),
        Label("/metrics", "sglang:num_running_reqs", "model_name"),
    ),
    bootstrap_port=_info("disaggregation_bootstrap_port"),
    tp=_info("tp_size"),
    transfer=_info("disaggregation_transfer_backend"),
    # The report first: the gauge is frozen while queues are full and no batch runs.
    kv_use=(
        Ratio("/v1/loads", ranks=("loads",), share=("token_usage",)),
        Ratio("/metrics", series="sglang:token_usage"),
    ),
    pairing=Pairing.ROOM,
    claims=(
        Claim(
            _ABORT,
            Support.NO,
            "one ABORT kills prefill's bootstrap thread (sglang #30301, fixed by PR #30352 in 0.5.16)",
            VersionRange("0.5.13", "0.5.16"),
            "nixl",
        ),
        Claim(
            _ABORT,
            Support.NO,
            "prefill is not told and writes on into freed decode pages (sglang PR #27372)",
            VersionRange(before="0.5.13"),
        ),
        Claim(
            _ABORT,
            Support.UNKNOWN,
            "decode frees pages before prefill has drained (until 0.5.19, PR #35360)",
            VersionRange("0.5.13", "0.5.19"),
        ),
        Claim(
            _ABORT,
            Support.UNKNOWN,
            "pages of an abort that was not acknowledged are freed after 30 s (sglang #36707, open)",
            VersionRange("0.5.19"),
        ),
        Claim(
            _PREFILL,
            Support.NO,
            "decode has no heartbeat with NIXL (sglang #10365)",
            VersionRange(before="0.5.3"),
            "nixl",
        ),
        Claim(
            _PREFILL,
            Support.NO,
            "decode turns unhealthy when prefill dies (sglang #12779)",
            VersionRange("0.5.3", "0.5.6"),
        ),
        Claim(_PREFILL, Support.UNKNOWN, "stale endpoints behind a stable address (sglang #33789, open)"),
        Claim(_DECODE, Support.YES, "the old session is blacklisted, the new one registers", transfer="mooncake"),
        Claim(
            _DECODE,
            Support.NO,
            "prefill segfaults in add_remote_agent (smg #2503)",
            VersionRange("0.5.18", "0.5.19"),
            "nixl",
        ),
        Claim(_DECODE, Support.UNKNOWN, "replacing one role can leave both unusable (sglang #33789, open)"),
    ),
)
