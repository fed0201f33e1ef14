"""One instance as collectors see it: the deployment's record, and where on this host it lives."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pdctl.collect.sightings import Sighting
from pdctl.deployment.model import Instance
from pdctl.managers import shim


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is collected of. `pid` None: no process of it is known here, `why_no_pid` says why."""

    instance: Instance
    pid: int | None = None
    """Root of its process tree, on this host."""
    why_no_pid: str = "nobody looked"
    record: shim.Record | None = None
    """What its shim wrote, when pdctl runs it."""
    last: Sighting | None = None
    """The process that served here and is certainly gone."""
    log_files: tuple[Path, ...] = ()
    """Oldest first."""
    unit: str | None = None
    """systemd unit, on this host."""
    user_unit: bool = False

    @property
    def name(self) -> str:
        return self.instance.name
