"""`pdctl logs`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption

FOLLOW_POLL_S = 0.2


def logs(
    instances: Annotated[
        list[str] | None, typer.Argument(metavar="[INSTANCE]...", help="Which; all without one.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Last lines of each instance.")] = 50,
    file: FileOption = None,
    name: NameOption = None,
) -> None:
    """Show the last lines of the instances' logs in the order of time, each with its instance before it.

    \b
    Examples:
      pdctl logs
      pdctl logs -f decode-0
      pdctl logs -n 1000 prefill-0 | grep -i error
    """
    from pdctl.deployment import log_selection, state
    from pdctl.managers import log_files
    from pdctl.render.log_lines import print_line

    root = state.state_root()
    deployment = state.chosen(name, file, root)
    chosen = log_selection.log_paths(state.StateFolder(root, deployment.name), deployment, instances or [])
    followers = [log_files.Follower(instance, path) for instance, path in chosen.items()] if follow else []
    for line in log_files.merged(chosen, lines):
        print_line(line, chosen)
    while follow:
        for follower in followers:
            for line in follower.poll():
                print_line(line, chosen)
        time.sleep(FOLLOW_POLL_S)
