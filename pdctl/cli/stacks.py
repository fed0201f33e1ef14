"""`pdctl stacks`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption


def stacks(
    instances: Annotated[
        list[str] | None, typer.Argument(metavar="[INSTANCE]...", help="Which; all without one.")
    ] = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="C and C++ frames too; each process stands still for some tenths of a second."),
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds for all dumps together.")] = 15.0,
    output: OutputOption = Output.TABLE,
    file: FileOption = None,
    name: NameOption = None,
) -> int:
    """Show where every thread of the engines is, without stopping them (but for --native).

    Reads each Python process of the engines by py-spy. With --native one instance after the other stands still: name
    the one that is stalled. A stopped process is read too and stays stopped; one that somebody else traces is left
    alone. Nothing of requests is shown: no arguments, no locals.

    \b
    Examples:
      pdctl stacks
      pdctl stacks decode-0
      pdctl stacks --native prefill-0
      pdctl stacks -o json | jq '.[].processes[].title'

    \b
    Exit codes: 0 every process was read, 1 some could not be, 3 nothing runs here.
    """
    from pdctl.collect import look
    from pdctl.collect.records import Mode
    from pdctl.deployment.running import chosen_or_running
    from pdctl.deployment.state import StateFolder, state_root
    from pdctl.render import console
    from pdctl.render.stacks import as_json, as_text

    found = chosen_or_running(name, file, state_root())
    for line in found.taken:
        console.tell(f"found {line}")
    deployment = look.select(found.deployment, instances or [])
    folder = found.folder or StateFolder(state_root(), deployment.name)
    dumps = look.dump(deployment, folder, Mode.NATIVE if native else Mode.NONBLOCKING, timeout, console.tell)
    print(as_json(dumps) if output is Output.JSON else as_text(dumps))
    for dump in dumps:
        if dump.problem:
            console.tell(f"{dump.instance}: {dump.problem}")
    return 1 if any(dump.problem for dump in dumps) else 0
