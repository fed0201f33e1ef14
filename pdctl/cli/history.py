"""`pdctl history`."""

from __future__ import annotations

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption


def history(file: FileOption = None, name: NameOption = None, output: OutputOption = Output.TABLE) -> int:
    """List recoveries, newest first: when, by whom, why, how long each phase took, before and after.

    Those that were begun on other machines are read where units run.
    One that was left half done is shown with its last step; `pdctl restart` finishes it.

    \b
    Examples:
      pdctl history
      pdctl history -o json | jq '.[-1].entries[].step'
    """
    from pdctl.deployment import state
    from pdctl.hosts.hosts import Hosts
    from pdctl.recover.ledgers import everybodys
    from pdctl.render import console
    from pdctl.render import recovery as rendered

    root = state.state_root()
    deployment = state.chosen(name, file, root)
    with Hosts() as hosts:
        recoveries = everybodys(state.StateFolder(root, deployment.name), deployment, hosts, console.tell)
    if output is Output.JSON:
        print(rendered.history_json(recoveries))
    elif recoveries:
        print("\n".join(rendered.history_lines(recoveries)))
    else:
        console.tell(f"{deployment.name}: no recovery is on record")
    return 0
