"""Evidence that a command is about: what is kept at a path, or what is collected of what runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pdctl.evidence.model import Evidence
    from pdctl.recover.live import Live


def kept_at(path: Path) -> Evidence:
    """Return what a folder or archive holds; what could not be read of it is told. Raises UsageError."""
    from pdctl.evidence.load import read_evidence
    from pdctl.render import console

    evidence = read_evidence(path)
    for problem in evidence.problems:
        console.tell(f"pdctl: {problem.place}: {problem.message}")
    return evidence


def live_of(urls: list[str], file: Path | None, name: str | None) -> Live:
    """Return what runs at some URLs, else the deployment that is meant, ready to be looked at.

    Raises PdctlError where nothing is known or nothing can be kept.
    """
    from pdctl.deployment.discovery import discover
    from pdctl.deployment.identify import parse_address
    from pdctl.deployment.running import chosen_or_running
    from pdctl.deployment.state import StateFolder, state_root
    from pdctl.recover.live import Live
    from pdctl.render import console

    if urls:
        addresses = [parse_address(url) for url in urls]
        found = discover(addresses, name=name, progress=console.tell, must_answer=False)
        notes, deployment, folder = found.notes, found.deployment, None
    else:
        running = chosen_or_running(name, file, state_root())
        notes, deployment, folder = (*running.taken, *running.untold), running.deployment, running.folder
    for line in notes:
        console.tell(line)
    return Live(folder or StateFolder(state_root(), deployment.name), deployment, console.tell)
