"""`pdctl explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import Output, OutputOption


def explain(
    finding: Annotated[
        str, typer.Argument(help="PDnnnn, or a name or label that `pdctl codes -o json` lists.", metavar="CODE|LABEL")
    ],
    output: OutputOption = Output.TABLE,
) -> int:
    """Print the runbook of a finding: what it means, how to confirm it, what to do, which versions have it.

    Needs neither network nor deployment. A label that several findings share prints them all.

    \b
    Examples:
      pdctl explain PD0301
      pdctl explain bootstrap_thread_dead
      pdctl explain PD0301 -o json | jq -r .[0].markdown
    """
    from pdctl.render import runbook as rendered
    from pdctl.runbooks import findings_called

    codes = findings_called(finding)
    if output is Output.JSON:
        print(rendered.as_json(codes))
    else:
        rendered.show(codes)
    return 0
