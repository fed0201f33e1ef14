"""The router of vLLM deployments, a fork of sglang-router. Measured on 0.1.17."""

from __future__ import annotations

from pdctl.dialects.answers import Field
from pdctl.dialects.family import Dialect, Kind, Sign

VLLM_ROUTER = Dialect(
    name="vllm-router",
    kind=Kind.ROUTER,
    # It forwards what it does not know, /v1/models and /get_server_info included, so workers shine through.
    signs=(
        Sign("/version", text=b"supported for transparent proxy"),
        Sign("/list_workers", ("urls",)),
    ),
    model=(Field("/v1/models", ("data", 0, "id")),),
)
