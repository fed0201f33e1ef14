"""`pdctl metrics`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption


def metrics(
    instances: Annotated[
        list[str] | None, typer.Argument(metavar="[INSTANCE]...", help="Which; all without one.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--grep", help="Series whose name matches, instead of those that matter.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every series.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.0, help="Seconds between two scrapes; 0 for one alone.")
    ] = 2.0,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for each answer.")] = 5.0,
    output: OutputOption = Output.TABLE,
    file: FileOption = None,
    name: NameOption = None,
) -> int:
    """Show the engines' metrics that matter, and what moves.

    Shown are the series by which pdctl judges queues, progress, failures and memory, whatever the engine's family;
    the last column is their increase between two scrapes. Series that are 0 and stay 0 are left out.

    \b
    Examples:
      pdctl metrics
      pdctl metrics decode-0 --interval 10
      pdctl metrics --grep kv_transfer
      pdctl metrics --all -o json | jq '.samples[] | select(.increase > 0)'

    \b
    Exit codes: 0 every instance answered, 1 some did not, 3 nothing runs here.
    """
    from pdctl.collect import look
    from pdctl.deployment.running import chosen_or_running
    from pdctl.deployment.state import state_root
    from pdctl.render import console
    from pdctl.render.metrics import as_json, as_table, chosen_samples

    found = chosen_or_running(name, file, state_root())
    for line in found.taken:
        console.tell(f"found {line}")
    deployment = look.select(found.deployment, instances or [])
    scrapes = chosen_samples(look.scrape(deployment, interval, timeout), pattern, every)
    if output is Output.JSON:
        print(as_json(scrapes))
    else:
        console.stdout_console().print(as_table(scrapes))
    for instance, problem in scrapes.problems.items():
        console.tell(f"{instance}: {problem}")
    return 1 if scrapes.problems else 0
