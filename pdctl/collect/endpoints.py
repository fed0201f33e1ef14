"""Which GETs each family answers, and where the answer is kept. All are plain GETs that change nothing.

Left out on purpose: `/health_generate` (it makes the engine work), and every port that is not HTTP: bootstrap
sockets, ZeroMQ, NIXL and vLLM's side channel, whose listener dies of one foreign message.
"""

from __future__ import annotations

import msgspec

from pdctl.deployment.model import Instance, Role


class Endpoint(msgspec.Struct, frozen=True):
    """One GET. With `file`, a 200's body is kept there, else the beginning of it in http.toml."""

    path: str
    file: str = ""
    is_registry: bool = False
    """Asked on the bootstrap port, which is HTTP in this family."""
    is_live: bool = False
    """What it tells changes from moment to moment: asked with each sample."""


HEALTH = Endpoint("/health", is_live=True)
MODELS = Endpoint("/v1/models")
INFO = Endpoint("/server_info", "server_info.json")
OLD_INFO = Endpoint("/get_server_info", "server_info.json")  # before 0.5.6; still routed later
LOADS = "loads.json"

_SGLANG = (
    HEALTH,
    MODELS,
    INFO,
    OLD_INFO,
    Endpoint("/v1/loads?include=all", LOADS, is_live=True),
    Endpoint("/get_load", LOADS, is_live=True),  # until 0.5.20
    Endpoint("/health", is_registry=True),
)
_PDCTL = (
    HEALTH,
    Endpoint("/health/live", is_live=True),
    MODELS,
    INFO,
    Endpoint("/v1/loads", LOADS, is_live=True),
    Endpoint("/ledger", "ledger.json", is_live=True),
    Endpoint("/rooms", "rooms.json", is_live=True),
    Endpoint("/rooms/recent", "rooms.recent.json", is_live=True),
    Endpoint("/flight", "flight.bin", is_live=True),
    Endpoint("/registry", is_registry=True, is_live=True),
)
_VLLM = (HEALTH, MODELS, Endpoint("/version"))
_DYNAMO = (HEALTH, Endpoint("/live", is_live=True), MODELS)
_LLM_D = (HEALTH, MODELS)
_TRTLLM = (HEALTH, MODELS, Endpoint("/version"), Endpoint("/perf_metrics"))
_SMG = (
    HEALTH,
    Endpoint("/readiness", is_live=True),
    Endpoint("/liveness", is_live=True),
    Endpoint("/workers", is_live=True),
    MODELS,
)
_VLLM_ROUTER = (HEALTH, Endpoint("/workers", is_live=True), MODELS)

_FAMILIES: dict[str, tuple[Endpoint, ...]] = {
    "sglang": _SGLANG,
    "pdctl": _PDCTL,
    "vllm": _VLLM,
    "dynamo": _DYNAMO,
    "llm-d": _LLM_D,
    "trtllm": _TRTLLM,
    "smg": _SMG,
    "vllm-router": _VLLM_ROUTER,
}


def endpoints_of(instance: Instance) -> tuple[Endpoint, ...]:
    """Return what to ask this instance; only prefill has a registry."""
    every = _FAMILIES.get(instance.dialect, (HEALTH, MODELS))
    has_registry = instance.role is Role.PREFILL and instance.bootstrap_port is not None
    return tuple(item for item in every if has_registry or not item.is_registry)
