"""`pdctl attach`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.options import Output, OutputOption

_SURVEY_S = 3.0


def attach(
    urls: Annotated[
        list[str],
        typer.Argument(metavar="[ROLE=]URL...", help="http://HOST:PORT of each engine and router.", show_default=False),
    ],
    file: Annotated[Path, typer.Option("--file", help="Deployment file to write.")] = Path("pd.toml"),
    name: Annotated[str | None, typer.Option("--name", help="Deployment's name. [default: the model's]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", help="File with the API key; else PDCTL_API_KEY.")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="Certificate authorities (PEM) for https.")] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Find out what already runs at some URLs, and write pd.toml.

    Each URL is asked by plain GETs what it is: SGLang, vLLM, Dynamo, our engine, or a router. A router that lists
    its workers is enough. Nothing is written unless every URL is an engine or a router. Which processes of this
    host serve them is kept too: should one die, that is how it is missed.

    vLLM tells its role nowhere: write prefill=URL and decode=URL, or give its router's URL too.

    \b
    Examples:
      pdctl attach http://127.0.0.1:30001
      pdctl attach http://p1:30000 http://d1:30002 http://router:30001
      pdctl attach prefill=http://p1:8000 decode=http://d1:8000 --name lab

    \b
    Exit codes: 0 written, 1 a URL does not answer or is no engine, 2 wrong usage, 3 a role or model is not told.
    """
    from pdctl.collect import host_processes, locate
    from pdctl.deployment import files
    from pdctl.deployment.discovery import discover
    from pdctl.deployment.identify import parse_address
    from pdctl.deployment.state import StateFolder, state_root
    from pdctl.errors import UsageError
    from pdctl.render import console
    from pdctl.render.attach import attach_json, print_attach

    if name is not None and not files.NAME.fullmatch(name):
        raise UsageError(f"--name {name!r} is not a deployment's name", "use letters, digits, '.', '_', '-'")
    if file.exists() and not force:
        raise UsageError(f"{file} exists already", "overwrite it with --force, or name another with --file")
    found = discover(
        [parse_address(url) for url in urls],
        name=name,
        api_key_file=str(api_key_file.resolve()) if api_key_file else None,
        ca_file=str(ca_file.resolve()) if ca_file else None,
        progress=console.tell,
    )
    files.save(found.deployment, file)
    folder = StateFolder(state_root(), found.deployment.name)
    locate.remember(found.deployment, folder, host_processes.read_now(deadline_s=_SURVEY_S), console.tell)
    if output is Output.JSON:
        print(attach_json(found, file))
    else:
        print_attach(found, file, console.stdout_console())
    return 0
