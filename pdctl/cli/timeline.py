"""`pdctl timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption


def timeline(
    target: Annotated[
        Path | None,
        typer.Argument(help="A kept folder or archive; without one, what runs now.", metavar="[DIR|ARCHIVE]"),
    ] = None,
    instance: Annotated[list[str] | None, typer.Option("--instance", help="Only of these. May be repeated.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=4, help="Seconds for collecting.")] = 10.0,
    output: OutputOption = Output.TABLE,
    file: FileOption = None,
    name: NameOption = None,
) -> int:
    """Tell what happened when, over all instances, oldest first.

    Starts and restarts, last steps, bursts of aborts and failures, dead threads, crashes, GPU faults, recoveries: from
    logs, process ages, our engine's flight recorder, kept series of a Prometheus and the ledger of recoveries.
    Reads only; what is collected of a running deployment stays for 14 days.

    \b
    Examples:
      pdctl timeline
      pdctl timeline incident/ --instance decode-0
      pdctl timeline ticket-4711.tar.gz -o json | jq -r '.[] | [.at, .instance, .what] | @tsv'

    \b
    Exit codes: 0 told, 3 nothing with a time is known.
    """
    from pdctl.cli.evidence import kept_at, live_of
    from pdctl.diagnose.case import Case
    from pdctl.diagnose.timeline import timeline_of
    from pdctl.recover.moments import recovery_moments
    from pdctl.render import timeline as rendered

    path = target
    if path is None:
        live = live_of([], file, name)
        live.take(tier=0, timeout_s=timeout)
        path = live.path
    case = Case(kept_at(path))
    moments = rendered.chosen([*timeline_of(case), *recovery_moments(path.absolute())], instance or [], case)
    print(rendered.as_json(moments) if output is Output.JSON else rendered.as_lines(moments, case.now))
    return 0 if moments else 3
