"""`pdctl diagnose`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ReportForm(StrEnum):
    """Form of the report on stdout."""

    TABLE = "table"
    SHORT = "short"
    JSON = "json"
    MARKDOWN = "md"


class FailOn(StrEnum):
    """Lowest level of a cause that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


def diagnose(
    directory: Annotated[
        Path, typer.Argument(help="Folder of an incident, with a topology.toml in it.", metavar="DIR")
    ],
    output: Annotated[ReportForm, typer.Option("--output", "-o", help="Form of the report.")] = ReportForm.TABLE,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit 1 from this level on.")] = FailOn.ERROR,
    name: Annotated[str, typer.Option("--name", help="Name of the deployment, for the report.")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All observations and the time line too.")] = False,
) -> int:
    """Say what is wrong, what was ruled out and what to do next. Reads the folder, touches nothing.

    Exit code: 0 well or no wedge, 1 wedged, failing or degraded, 3 cannot tell.

    \b
    Examples:
      pdctl diagnose incident/
      pdctl diagnose incident/ -o short
      pdctl diagnose incident/ -o json | jq '.causes[0]'
    """
    import sys

    from pdctl.diagnose.diagnosis import diagnose as judged
    from pdctl.diagnose.exit_status import exit_status
    from pdctl.evidence.directory import read_directory
    from pdctl.render.report_json import as_json
    from pdctl.render.report_markdown import as_markdown
    from pdctl.render.report_short import as_short
    from pdctl.render.report_table import as_table

    evidence = read_directory(directory)
    for problem in evidence.problems:
        print(f"pdctl: {problem.place}: {problem.message}", file=sys.stderr)
    report = judged(evidence, name)
    match output:
        case ReportForm.JSON:
            print(as_json(report))
        case ReportForm.SHORT:
            print(as_short(report))
        case ReportForm.MARKDOWN:
            print(as_markdown(report), end="")
        case ReportForm.TABLE:
            print(as_table(report, verbose))
    return exit_status(report, fail_on)
