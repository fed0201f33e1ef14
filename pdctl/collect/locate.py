"""Find out where on a host each instance lives: its root process, its log, its unit; of a dead one where it lived."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pdctl.collect import sightings
from pdctl.collect.host_processes import ProcessRow, Table
from pdctl.collect.sightings import Sighting
from pdctl.collect.target import Target
from pdctl.deployment import layout
from pdctl.deployment.model import Deployment, Instance
from pdctl.deployment.state import StateFolder
from pdctl.dialects.command_flags import Flags, command_line_of
from pdctl.errors import PdctlError
from pdctl.hosts.host import LOCAL
from pdctl.managers import shim


def targets(deployment: Deployment, folder: StateFolder, table: Table, host: str = LOCAL) -> tuple[Target, ...]:
    """Return one target for each instance of a host, in the order of the deployment. `table` is that host's."""
    listeners = _listeners(table.processes)
    seen = sightings.load(folder) if host == LOCAL else {}
    of_host = (instance for instance in deployment.instances if instance.host == host)
    return tuple(_target(instance, folder, table, listeners, seen.get(instance.url)) for instance in of_host)


def remember(deployment: Deployment, folder: StateFolder, table: Table, say: Callable[[str], None]) -> None:
    """Keep which processes of this host serve the deployment now, for the day when one is gone.

    Where it cannot be kept that is told, and costs nothing else.
    """
    listeners = _listeners(table.processes)
    here = (item for item in deployment.instances if is_here(item) and item.manager == "none")
    roots = ((item.url, _root(listeners.get(layout.host_and_port(item.url)[1]), table)) for item in here)
    try:
        sightings.note(folder, ((url, row) for url, row in roots if row is not None))
    except PdctlError as error:
        say(f"not kept which processes serve: {error.message}")


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


def _target(
    instance: Instance,
    folder: StateFolder,
    table: Table,
    listeners: Mapping[int, ProcessRow],
    seen_last: Sighting | None,
) -> Target:
    if instance.host == LOCAL and not is_here(instance):
        where = layout.host_and_port(instance.url)[0]
        why = f'it runs on {where}, and only its HTTP endpoints can be read: say `host = "ssh:{where}"` in pd.toml'
        return Target(instance=instance, why_no_pid=why)
    paths = folder.paths(instance.name)
    run = shim.observe(paths) if layout.is_local(instance) else None
    if run is not None and run.record is not None:
        return Target(
            instance=instance,
            pid=run.pid,
            why_no_pid=f"no process: {run.explanation()}",
            record=run.record,
            log_files=rotated_files(paths.log),
        )
    port = layout.host_and_port(instance.url)[1]
    root = _root(listeners.get(port), table) or _main_of(instance.unit, table)
    if root is None and seen_last is not None and instance.unit is None:
        return _unseen(instance, port, table, seen_last)
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


def _unseen(instance: Instance, port: int, table: Table, last: Sighting) -> Target:
    """Return what is known of an instance on whose port nobody listens, by the process that did."""
    log_files = rotated_files(Path(last.log)) if last.log else ()
    if not sightings.is_certainly_gone(last, table):
        row = table.of(last.pid)
        if row is not None and last.is_of(row):
            return Target(instance=instance, pid=row.pid, log_files=log_files)
        return Target(instance=instance, why_no_pid=table.problem or f"no process here listens on port {port}")
    other = next((row for row in table.processes if _is_for_port(row, instance, port)), None)
    if other is not None:
        # Another run of it, or one in a network of its own: nothing is certain of either.
        why = f"no process here listens on port {port}; pid {other.pid} is started for that port"
        return Target(instance=instance, why_no_pid=why)
    why = f"pid {last.pid}, which listened on port {port}, is gone"
    return Target(instance=instance, why_no_pid=why, last=last, log_files=log_files)


def _is_for_port(row: ProcessRow, instance: Instance, port: int) -> bool:
    """Return whether a process was started to listen there, wherever it is in its start."""
    line = command_line_of(row.cmdline)
    if line is None or line.dialect != instance.dialect or row.state in ("Z", "X"):
        return False
    told = Flags(row.cmdline).number(line.port_flags) or row.status_port
    # One that tells no port may be meant for any.
    return (told or line.default_ports.get(instance.role) or line.default_ports.get("") or port) == port


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
    """Return the process that started the one that listens, where both are parts of an engine.

    Who else started it, a script in the same Python perhaps, has a tree and a log of its own.
    """
    while row is not None and "::" in row.title:
        parent = table.of(row.ppid)
        if parent is None or parent.exe != row.exe or not _is_of_an_engine(parent):
            return row
        row = parent
    return row


def _is_of_an_engine(row: ProcessRow) -> bool:
    return "::" in row.title or command_line_of(row.cmdline) is not None


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
