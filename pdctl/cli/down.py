"""`pdctl down`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption
from pdctl.managers.shim import STOP_DEADLINE_S


def down(
    file: FileOption = None,
    name: NameOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds a role may take to finish its requests.")
    ] = STOP_DEADLINE_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop the router and all engines, and make sure that no process of theirs is left.

    Engines finish the requests they have; what is left at the timeout is killed. Stopping what is stopped is
    no error.

    \b
    Examples:
      pdctl down
      pdctl down --timeout 0          kill at once
      pdctl down --name staging

    \b
    Exit codes: 0 nothing runs any more, 2 wrong usage, 4 a process survives SIGKILL, 5 pdctl did not start it.
    """
    from pdctl.deployment import layout, shutdown, state
    from pdctl.errors import CannotTell, Refused
    from pdctl.render import console
    from pdctl.render import stopping as rendered

    root = state.state_root()
    try:
        deployment = state.chosen(name, file, root)
    except CannotTell as nothing:
        console.tell(f"pdctl: {nothing.message}: nothing to stop")
        return
    folder = state.StateFolder(root, deployment.name)
    mine = [instance for instance in deployment.instances if layout.is_local(instance)]
    if not mine:
        raise Refused(
            f"nothing of {deployment.name!r} was started by pdctl on this machine, so there is nothing to stop",
            "stop it where it runs; what pdctl started has another name: see `pdctl down --name NAME`",
        )
    with folder.locked(console.tell):
        stopped = shutdown.take_down(folder, mine, deadline_s=timeout)
    print(rendered.as_json(stopped) if output is Output.JSON else rendered.as_lines(stopped))
