"""Find out where on this host each instance lives: its root process, its log, its unit."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from pdctl.collect.host_processes import ProcessRow, Table
from pdctl.collect.target import Target
from pdctl.deployment import layout
from pdctl.deployment.model import Deployment, Instance
from pdctl.deployment.state import StateFolder
from pdctl.hosts.host import LOCAL
from pdctl.managers import shim


def targets(deployment: Deployment, folder: StateFolder, table: Table, host: str = LOCAL) -> tuple[Target, ...]:
    """Return one target for each instance of a host, in the order of the deployment. `table` is that host's."""
    listeners = _listeners(table.processes)
    of_host = (instance for instance in deployment.instances if instance.host == host)
    return tuple(_target(instance, folder, table, listeners) for instance in of_host)


def is_here(instance: Instance) -> bool:
    """Return whether an instance is meant to run on this host: managed here, or its address is one of ours."""
    if instance.host != LOCAL:
        return False
    return layout.is_local(instance) or _is_own_address(layout.host_and_port(instance.url)[0])


def unreachable_urls(deployment: Deployment) -> tuple[str, ...]:
    """Return a line for each instance that only its host reaches: GETs go through that host, requests cannot."""
    return tuple(
        f"{item.name}: {item.url} is read through {item.host}; a probe goes out from this machine and needs a url "
        "that is reached from here"
        for item in deployment.instances
        if item.host != LOCAL and layout.host_and_port(item.url)[0] in layout.LOOPBACK
    )


def _target(instance: Instance, folder: StateFolder, table: Table, listeners: Mapping[int, ProcessRow]) -> Target:
    if instance.host == LOCAL and not is_here(instance):
        where = layout.host_and_port(instance.url)[0]
        why = f'it runs on {where}, and only its HTTP endpoints can be read: say `host = "ssh:{where}"` in pd.toml'
        return Target(instance=instance, why_no_pid=why)
    paths = folder.paths(instance.name)
    seen = shim.observe(paths) if layout.is_local(instance) else None
    if seen is not None and seen.record is not None:
        return Target(
            instance=instance,
            pid=seen.pid,
            why_no_pid=f"no process: {seen.explanation()}",
            record=seen.record,
            log_files=rotated_files(paths.log),
        )
    port = layout.host_and_port(instance.url)[1]
    root = _root(listeners.get(port), table) or _main_of(instance.unit, table)
    if root is None:
        place = "here" if instance.host == LOCAL else f"on {instance.host}"
        why = table.problem or f"no process {place} listens on port {port}"
        return Target(instance=instance, why_no_pid=why, unit=instance.unit)
    return Target(
        instance=instance,
        pid=root.pid,
        log_files=_log_files(root, instance.host),
        unit=instance.unit or root.unit,
    )


def _log_files(root: ProcessRow, host: str) -> tuple[Path, ...]:
    if not root.stdout or not root.stdout.startswith("/"):
        return ()
    # Elsewhere the host itself is asked for the rotated ones.
    return rotated_files(Path(root.stdout)) if host == LOCAL else (Path(root.stdout),)


_ROTATED = re.compile(r"[.-]\d[\d.T_-]*")


def rotated_files(log: Path) -> tuple[Path, ...]:
    """Return a log and its rotated files, oldest first: `x.log.2`, `x.log-20260619`, `x.log`. Not packed ones."""
    if not log.is_file():
        return ()
    try:
        older = [
            (path.stat().st_mtime, path)
            for path in log.parent.iterdir()
            if path.name.startswith(log.name) and _ROTATED.fullmatch(path.name[len(log.name) :])
        ]
    except OSError:
        older = []
    return (*(path for _, path in sorted(older)), log)


def _listeners(rows: Iterable[ProcessRow]) -> dict[int, ProcessRow]:
    """Return port -> the process that listens there; of a parent and children that share it, the oldest."""
    found: dict[int, ProcessRow] = {}
    for row in sorted(rows, key=lambda row: row.start_ticks):
        for port in row.listening:
            found.setdefault(port, row)
    return found


def _root(row: ProcessRow | None, table: Table) -> ProcessRow | None:
    """Return the process that started the one that listens, where that names itself a part of an engine."""
    while row is not None and "::" in row.title:
        parent = table.of(row.ppid)
        if parent is None or parent.exe != row.exe:
            return row
        row = parent
    return row


def _main_of(unit: str | None, table: Table) -> ProcessRow | None:
    """Return the oldest process of a unit: one that hangs in its start listens nowhere yet."""
    rows = (row for row in table.processes if unit is not None and row.unit == unit)
    return min(rows, key=lambda row: row.start_ticks, default=None)


def _is_own_address(host: str) -> bool:
    """Return whether a name or address is this host's: binding to it is what only the owner can do."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == socket.gethostname()
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return not address.is_unspecified
