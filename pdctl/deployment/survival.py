"""Which peers an instance's restart would cost: by the capability tables of the families. Unknown counts as no."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.dialects import catalogue
from pdctl.dialects.family import Capability, Kind, Support

_PEER = {
    Role.PREFILL: (Role.DECODE, Capability.SURVIVES_PREFILL_RESTART),
    Role.DECODE: (Role.PREFILL, Capability.SURVIVES_DECODE_RESTART),
}


def victims(deployment: Deployment, instance: Instance) -> Iterable[tuple[Instance, str]]:
    """Yield each peer that may not survive a restart of this instance, and the source of that."""
    if instance.role not in _PEER:
        return
    role, ability = _PEER[instance.role]
    for peer in deployment.of_role(role):
        support, source = catalogue.capability(peer.dialect, Kind.ENGINE, ability, peer.version, peer.transfer)
        if support is not Support.YES:
            yield peer, f"{peer.dialect} {peer.version or 'of unknown version'}, {source}"
