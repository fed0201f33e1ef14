"""vLLM servers with a NIXL or Mooncake connector. Facts were read in 0.31.0 to 0.33.0 and measured on 0.32.0 (CPU)."""

from __future__ import annotations

from pdctl.dialects.answers import Field, Label
from pdctl.dialects.family import Capability, Claim, Dialect, Kind, Pairing, Ratio, Sign, Support
from pdctl.dialects.versions import VersionRange

VLLM = Dialect(
    name="vllm",
    kind=Kind.ENGINE,
    signs=(Sign("/metrics", series="vllm:"),),
    version=(Field("/version", ("version",)),),
    # No endpoint tells the role: both sides export the same series, and kv_role stands in the argv only.
    role=(),
    model=(
        Field("/v1/models", ("data", 0, "id")),
        Label("/metrics", "vllm:num_requests_running", "model_name"),
    ),
    kv_use=(
        Ratio("/metrics", series="vllm:kv_cache_usage_perc"),
        Ratio("/metrics", series="vllm:gpu_cache_usage_perc"),
    ),
    pairing=Pairing.HANDOVER,
    claims=(
        Claim(
            Capability.ABORT_SAFE,
            Support.UNKNOWN,
            "an aborted request that waits for KV holds blocks until the read reports (vllm #46283, open)",
        ),
        Claim(
            Capability.SURVIVES_PREFILL_RESTART,
            Support.NO,
            "decode segfaults on the first request after a prefill restart (vllm #49238)",
            VersionRange("0.25.0", "0.25.2"),
        ),
        Claim(
            Capability.SURVIVES_PREFILL_RESTART,
            Support.UNKNOWN,
            "stale peers are replaced in pull mode only, and no endpoint tells the mode",
            VersionRange("0.31.0"),
        ),
        Claim(
            Capability.SURVIVES_DECODE_RESTART,
            Support.UNKNOWN,
            "killed decodes left prefills unusable until a restart (smg #2382, version not stated)",
        ),
    ),
)
