"""What the managers of all hosts say of the instances that they run."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from pdctl.deployment import layout
from pdctl.deployment.model import Instance
from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError
from pdctl.hosts.host import Host
from pdctl.hosts.hosts import Hosts
from pdctl.managers import shim, systemd
from pdctl.managers.sight import Sight


def of(folder: StateFolder, instances: Iterable[Instance], hosts: Hosts, timeout_s: float) -> dict[str, Sight]:
    """Look at every instance of a shim or unit, on all hosts at once; those that others run are absent."""
    instances = tuple(instances)
    seen = {item.name: shim.observe(folder.paths(item.name)).sight() for item in instances if layout.is_local(item)}
    units: dict[str, dict[str, str]] = {}
    for item in instances:
        if item.manager == "systemd" and item.unit:
            units.setdefault(item.host, {})[item.name] = item.unit
    if not units:
        return seen
    with ThreadPoolExecutor(max_workers=len(units)) as pool:
        asked = [pool.submit(_of_units, hosts.of(name), names, timeout_s) for name, names in units.items()]
        return {name: sight for found in (seen, *(one.result() for one in asked)) for name, sight in found.items()}


def _of_units(host: Host, units: dict[str, str], timeout_s: float) -> dict[str, Sight]:
    try:
        shown = systemd.show(host, units.values(), timeout_s)
    except PdctlError as error:
        return dict.fromkeys(units, Sight(words=error.message, is_known=False))
    absent = Sight(words="unit not found")
    return {name: shown[unit].sight() if unit in shown else absent for name, unit in units.items()}
