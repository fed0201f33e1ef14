"""`pdctl up`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl import signals
from pdctl.cli.options import Output, OutputOption

if TYPE_CHECKING:
    from pdctl.deployment.model import Deployment


class Restart(StrEnum):
    NO = "no"
    ON_FAILURE = "on-failure"


def up(
    model: Annotated[
        str | None,
        typer.Option("--model", help="`smollm2` (default), a GGUF file, or a Hugging Face folder."),
    ] = None,
    prefill: Annotated[int | None, typer.Option("--prefill", help="Prefill engines. [default: 1]")] = None,
    decode: Annotated[int | None, typer.Option("--decode", help="Decode engines. [default: 1]")] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel ranks of each engine. [default: 1]")] = None,
    port_base: Annotated[
        int | None,
        typer.Option("--port-base", help="First of 100 ports, best below 32768; else 30000-30002, 8998, 29000."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Deployment file; ./pd.toml is taken by itself.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the deployment.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the processes exist.")] = False,
    no_probe: Annotated[bool, typer.Option("--no-probe", help="Wait until all are well, but send no request.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds until all must be well, and for the request.")
    ] = 120.0,
    restart: Annotated[
        Restart, typer.Option("--restart", help="Whether an engine that fails is started again by itself.")
    ] = Restart.NO,
    print_units: Annotated[
        bool, typer.Option("--print-units", help="Print systemd units for it, and start and install nothing.")
    ] = False,
    for_drills: Annotated[
        bool, typer.Option("--for-drills", help="Engines that can be broken on purpose, for `pdctl drill`.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Start a prefill/decode deployment on this machine and prove it with a real request.

    What runs already is left alone, so a second `up` is harmless. If an instance does not come up, or you
    press Ctrl-C, what this call started is stopped again. If all are well but the request fails, they are left
    running to be examined. The engines go on when pdctl ends.

    \b
    Examples:
      pdctl up                              default model, 1 prefill, 1 decode
      pdctl up --prefill 2 --decode 2
      pdctl up --tp 2
      pdctl up --model ~/models/Qwen3-0.6B
      pdctl up --file pd.toml --timeout 600
      pdctl up --print-units

    \b
    Exit codes: 0 the request got through, 1 it did not or an instance did not come up, 2 wrong usage, 3 could not
    tell, 4 this machine is not ready (port taken, no room, engine not installed), 5 other settings run already.
    """
    from pdctl.deployment import model_files, overview, plan, readiness, rehearsal, startup, state
    from pdctl.hosts.hosts import Hosts
    from pdctl.probe import prove
    from pdctl.render import console, fetching, up_result
    from pdctl.render.starting import start_display

    signals.end_alike()
    request = plan.Request(model, prefill, decode, tp, port_base, file, name)
    with fetching.display() as fetched:
        wanted = plan.plan(request, lambda name: model_files.resolve(name, fetched, console.tell))
    folder = state.StateFolder(state.state_root(), wanted.name)
    if for_drills:
        wanted = rehearsal.for_drills(wanted, folder)
    if print_units:
        return _print_units(wanted, output)
    with folder.locked(console.tell), start_display() as progress:
        started = startup.bring_up(
            folder, wanted, progress, console.tell, timeout_s=timeout, is_waiting=not no_wait, restart=restart.value
        )
    report = None
    if not (no_wait or no_probe):
        with startup.undone_on(KeyboardInterrupt, folder, started, console.tell):
            report = prove(wanted, timeout_s=timeout, progress=console.tell)
    with Hosts() as hosts:
        seen = overview.take(folder, wanted, readiness.ASK_TIMEOUT_S, hosts=hosts)
    if output is Output.JSON:
        print(up_result.as_json(seen, report))
    else:
        up_result.print_result(seen, report, console.stdout_console())
    return report.exit_code if report else 0


def _print_units(deployment: Deployment, output: Output) -> int:
    from pdctl.deployment import units
    from pdctl.render import unit_files as rendered

    target, files = units.target_of(deployment), units.unit_files(deployment)
    print(rendered.as_json(files, target) if output is Output.JSON else rendered.as_text(files, target), end="")
    return 0
