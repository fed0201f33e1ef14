"""Which log files a user means."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pdctl.deployment import layout
from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.errors import CannotTell, UsageError


def log_paths(folder: StateFolder, deployment: Deployment, wanted: Iterable[str]) -> dict[str, Path]:
    """Return instance -> log file, in the deployment's order; all that pdctl runs if none is wanted.

    Raises UsageError for an unknown name, CannotTell for an instance whose log pdctl does not keep.
    """
    wanted = tuple(wanted)
    names = [instance.name for instance in deployment.instances]
    if unknown := [name for name in wanted if name not in names]:
        raise UsageError(f"{deployment.name!r} has no instance {unknown[0]!r}", f"there are {', '.join(names)}")
    asked = [instance for instance in deployment.instances if not wanted or instance.name in wanted]
    ours = {instance.name: folder.paths(instance.name).log for instance in asked if layout.is_local(instance)}
    if len(ours) < len(set(wanted)) or not ours:
        foreign = next(instance for instance in asked if instance.name not in ours)
        raise CannotTell(
            f"{foreign.name} is not run by pdctl here (manager {foreign.manager}, host {foreign.host})",
            f"journalctl -f -u {foreign.unit}" if foreign.unit else "read its log where it runs",
        )
    return ours
