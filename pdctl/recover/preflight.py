"""Before the first signal: can what would be stopped be started again?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from pdctl.deployment import layout, preflight
from pdctl.deployment.model import Instance
from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused
from pdctl.managers import shim
from pdctl.recover.drift import weights_of

ProblemsOf = Callable[[Instance], Iterable[str]]

ROOM_BYTES = 64 << 20
"""For logs, state files and the ledger until somebody looks."""


def check(folder: StateFolder, instances: Iterable[Instance], problems_of: ProblemsOf) -> None:
    """Raise Refused with everything that would keep a target from starting again; nothing was changed yet."""
    instances = tuple(instances)
    problems = [problem for instance in instances for problem in problems_of(instance)]
    free = shutil.disk_usage(folder.folder).free
    if free < ROOM_BYTES:
        problems.append(f"only {free >> 20} MB free in {folder.folder}, {ROOM_BYTES >> 20} are needed")
    if problems:
        raise Refused("; ".join(problems), "nothing was stopped; put this right first")
    preflight.check_engine_extra(instance for instance in instances if layout.is_local(instance))


def problems_under_shim(folder: StateFolder, instance: Instance) -> Iterable[str]:
    """Yield what would keep an instance of the embedded manager from starting: command, weights, ports."""
    if instance.start is None:
        yield f"{instance.name} has no start command"
        return
    if shutil.which(instance.start[0]) is None:
        yield f"{instance.name}: {instance.start[0]} cannot be executed"
    weights = weights_of(instance.start)
    if weights is not None and (unreadable := _unreadable(weights)) is not None:
        yield f"{instance.name}: weights {unreadable} cannot be read"
    yield from _foreign_ports(folder, instance)


def _unreadable(weights: Path) -> Path | None:
    """Return the first file of a model that cannot be opened; a link whose target was cleaned away is one."""
    try:
        files = sorted(weights.iterdir()) if weights.is_dir() else [weights]
    except OSError:
        return weights
    return next((file for file in files if not os.access(file, os.R_OK)), None)


def _foreign_ports(folder: StateFolder, instance: Instance) -> Iterable[str]:
    """Yield the ports that are held by somebody else than the instance itself."""
    own = set(shim.leftovers(folder.paths(instance.name)))
    sockets = {inode for pid in own for inode in _socket_inodes(pid)}
    for port in layout.ports_of(instance):
        holders = _listeners(port)
        if holders and not holders & sockets:
            yield f"port {port} of {instance.name} is held by another process"


def _listeners(port: int) -> set[str]:
    """Return the inodes of sockets that listen on a TCP port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        path = Path(table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _socket_inodes(pid: int) -> Iterable[str]:
    try:
        entries = list(os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return
    for entry in entries:
        try:
            link = str(Path(entry.path).readlink())
        except OSError:
            continue
        if link.startswith("socket:["):
            yield link[8:-1]
