"""The deployment as every other package sees it; immutable."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    UNIFIED = "unified"
    ROUTER = "router"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One engine or router. Absent is unknown."""

    name: str
    role: Role
    dialect: str
    """pdctl | sglang | vllm | dynamo | smg | vllm-router | llm-d | trtllm"""
    url: str
    """`http://host:port`, without a trailing slash."""
    host: str = "local"
    """local | ssh:NAME | exec:COMMAND"""
    manager: str = "none"
    """shim | systemd | none"""
    bootstrap_port: int | None = None
    metrics_url: str | None = None
    """Where metrics are scraped, when it is not `url` + /metrics (a router's own port)."""
    model: str | None = None
    """Served model name."""
    version: str | None = None
    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    ep: int | None = None
    nodes: int | None = None
    transfer: str | None = None
    """nixl | mooncake | mori | fake | ..."""
    hosts: tuple[str, ...] = ()
    """Of an engine that spans several nodes."""
    unit: str | None = None
    """systemd unit."""
    start: tuple[str, ...] | None = None
    """argv that starts it, for the shim and for printed commands."""
    env: dict[str, str] = {}
    """Added to the environment of `start`."""
    api_key_file: str | None = None
    ca_file: str | None = None


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of instances that serve one model together."""

    name: str
    model: str
    """Served model name, as a client writes it."""
    instances: tuple[Instance, ...]

    def of_role(self, role: Role) -> tuple[Instance, ...]:
        """Return the instances of a role, in the order of the file."""
        return tuple(instance for instance in self.instances if instance.role == role)

    @property
    def router(self) -> Instance | None:
        """Return the first router, if there is one."""
        routers = self.of_role(Role.ROUTER)
        return routers[0] if routers else None

    @property
    def pairs(self) -> tuple[tuple[Instance, Instance], ...]:
        """Return every prefill with every decode."""
        decodes = self.of_role(Role.DECODE)
        return tuple((prefill, decode) for prefill in self.of_role(Role.PREFILL) for decode in decodes)
