"""What `pdctl up` ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pdctl.deployment.overview import Overview
from pdctl.probe import ProbeReport, Verdict
from pdctl.render import console as consoles
from pdctl.render import status
from pdctl.render.probe import print_probe, probe_json

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "pdctl.up/1"


def as_json(overview: Overview, report: ProbeReport | None) -> str:
    """Return one object: `status` as `pdctl status` gives it, `probe` as `pdctl probe` does, or null."""
    probe = msgspec.Raw(probe_json(report).encode()) if report else None
    whole = {"schema": SCHEMA, "status": overview, "probe": probe}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()


def print_result(overview: Overview, report: ProbeReport | None, console: Console) -> None:
    """Print the probe's stages, a line for each instance, and what to do next."""
    if report is not None:
        print_probe(report, consoles.stdout_console())  # it narrows its console
        console.print()
    console.print(status.as_table(overview))
    router = next((row for row in overview.instances if row.role == "router"), None)
    if report is not None and report.verdict is not Verdict.PROVEN:
        consoles.tell("the instances are left running: see `pdctl logs` and `pdctl probe`, stop them with `pdctl down`")
    elif router is not None and overview.is_well:
        console.print(f"\n{overview.model} is served at {router.url}/v1", markup=False)
