"""`pdctl status`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption


def status(
    file: FileOption = None,
    name: NameOption = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for all answers together.")] = 2.0,
    output: OutputOption = Output.TABLE,
) -> int:
    """Show one line an instance: role, pid, age, health, requests running and waiting, age of the oldest.

    Works while engines are down or hang. It believes what engines say of themselves: only `pdctl probe`
    proves that requests get through. Exit code: 0 all well, 1 not, 3 nothing is deployed.

    \b
    Examples:
      pdctl status
      pdctl status --file pd.toml
      pdctl status -o json | jq '.instances[] | select(.is_well | not)'
    """
    from pdctl.deployment import overview, state
    from pdctl.hosts.hosts import Hosts
    from pdctl.render import console
    from pdctl.render import status as rendered

    root = state.state_root()
    deployment = state.chosen(name, file, root)
    with Hosts() as hosts:
        seen = overview.take(state.StateFolder(root, deployment.name), deployment, timeout, hosts=hosts)
    if output is Output.JSON:
        print(rendered.as_json(seen))
    else:
        console.stdout_console().print(rendered.as_table(seen))
    return 0 if seen.is_well else 1
