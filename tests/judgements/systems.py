"""What is judged: deployments in good health, and what their clients do."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from pdctl.drill.loads import CROWD, LIGHT
from pdctl.load.profile import Profile, Range


@dataclass(frozen=True, slots=True)
class System:
    """A deployment of real engines behind the real router."""

    name: str
    flags: tuple[str, ...]
    """Of `pdctl up`."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What clients do meanwhile."""

    name: str
    profile: Profile | None
    """None: there are none."""
    right: tuple[str, ...] = ()
    """Codes that may be named, because they say what is the case."""


SYSTEMS = (
    System("1P1D", ()),
    System("1P2D", ("--decode", "2")),
    System("1P1D tp 2", ("--tp", "2")),
)
LEFT = "PD0904"
"""When one load gives way to the next, the clients of the first leave in the midst of their requests."""
CLIENTS = (
    Clients("idle", None, right=("PD0907",)),
    Clients("healthy", LIGHT, right=(LEFT,)),
    Clients(
        "busy", replace(LIGHT, sessions=12, turns=Range(1, 4), output_tokens=Range(16, 128)), right=("PD0901", LEFT)
    ),
    Clients("saturated", CROWD, right=("PD0901", LEFT)),
)
