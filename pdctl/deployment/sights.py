"""What the managers of this host say of the instances that they run."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.deployment import layout
from pdctl.deployment.model import Instance
from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError
from pdctl.hosts.host import LOCAL, LocalHost
from pdctl.managers import shim, systemd
from pdctl.managers.sight import Sight


def of(folder: StateFolder, instances: Iterable[Instance]) -> dict[str, Sight]:
    """Look at every instance of a shim or unit here; those of others, and of other hosts, are absent."""
    instances = tuple(instances)
    seen = {item.name: shim.observe(folder.paths(item.name)).sight() for item in instances if layout.is_local(item)}
    units = {
        item.name: item.unit for item in instances if item.unit and (item.manager, item.host) == ("systemd", LOCAL)
    }
    return seen | _of_units(units)


def _of_units(units: dict[str, str]) -> dict[str, Sight]:
    try:
        shown = systemd.show(LocalHost(), units.values())
    except PdctlError as error:
        return dict.fromkeys(units, Sight(words=error.message, is_known=False))
    absent = Sight(words="unit not found")
    return {name: shown[unit].sight() if unit in shown else absent for name, unit in units.items()}
