"""The router of SGLang deployments: smg, and its predecessor sglang-router. Measured on 1.13.0 and 0.3.2."""

from __future__ import annotations

from pdctl.dialects.answers import Field
from pdctl.dialects.family import Ask, Dialect, Kind, Sign

SMG = Dialect(
    name="smg",
    kind=Kind.ROUTER,
    signs=(
        # vllm-router counts its workers too; it is recognised before this one.
        Sign("/workers", ("stats", "prefill_count")),
        Sign("/version", text=b'"code":"unknown_url"'),
    ),
    model=(Field("/v1/models", ("data", 0, "id")), Field("/workers", ("workers", 0, "model_id"))),
    # Which way to ask is the engines' business; the router takes both.
    ask=Ask.CHAT,
)
