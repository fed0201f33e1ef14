"""What `pdctl attach` found, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pdctl.deployment.discovery import Discovery
from pdctl.dialects import catalogue
from pdctl.dialects.family import Capability, Kind, Support

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "pdctl.attach/1"


def attach_json(discovery: Discovery, file: Path) -> str:
    """Return what was found as one JSON object."""
    content = {"schema": SCHEMA, "file": str(file)} | msgspec.to_builtins(discovery)
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def print_attach(discovery: Discovery, file: Path, console: Console) -> None:
    """Print one line an instance, what could not be told, and the file that was written."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("instance", "dialect", "version", "tp", "url", "model"):
        table.add_column(title, overflow="fold")
    for one in discovery.deployment.instances:
        cells = (one.name, one.dialect, one.version, one.tp, one.url, one.model)
        table.add_row(*("-" if cell is None else str(cell) for cell in cells))
    console.print(table, markup=False)
    for note in (*discovery.notes, *abort_notes(discovery)):
        console.print(f"note: {note}", markup=False, highlight=False)
    name = discovery.deployment.name
    console.print(f"wrote {file} (deployment {name}); next: pdctl probe", markup=False, highlight=False, soft_wrap=True)


def abort_notes(discovery: Discovery) -> tuple[str, ...]:
    """Return a line for each dialect and version that may not survive a client that leaves."""
    notes = []
    for one in discovery.deployment.instances:
        if catalogue.family(one.dialect, Kind.ENGINE) is None:
            continue
        support, source = catalogue.capability(
            one.dialect, Kind.ENGINE, Capability.ABORT_SAFE, one.version, one.transfer
        )
        if support is not Support.YES:
            word = "known not" if support is Support.NO else "not known"
            notes.append(f"{one.dialect} {one.version or ''}".strip() + f" is {word} to survive aborts: {source}")
    return tuple(dict.fromkeys(notes))
