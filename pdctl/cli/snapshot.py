"""`pdctl snapshot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption


def snapshot(
    file: FileOption = None,
    name: NameOption = None,
    stacks: Annotated[
        bool, typer.Option("--stacks/--no-stacks", help="Two dumps of every process's stacks, without stopping it.")
    ] = True,
    timeout: Annotated[float, typer.Option("--timeout", min=4, help="Seconds for everything together.")] = 10.0,
    out: Annotated[Path | None, typer.Option("--out", help="Where the shared archive goes.")] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Keep the evidence of every instance: metrics, health, processes, stacks, logs, configuration.

    Makes two things. The kept folder is exact but for credentials, readable by you alone, on this machine, for 14
    days. The shared archive has prompts, completions, names and addresses replaced, and is what you send.
    Exit code: 0 complete, 3 something could not be taken in time (the manifest says what).

    \b
    Examples:
      pdctl snapshot
      pdctl snapshot --timeout 30 --out ticket-4711.tar.gz
      pdctl snapshot -o json | jq -r .archive
    """
    import msgspec

    from pdctl.cli.recovering import deployed
    from pdctl.evidence.archive import share
    from pdctl.recover.live import Live
    from pdctl.render import console

    folder, deployment = deployed(file, name)
    live = Live(folder, deployment, console.tell)
    summary = live.take(tier=1 if stacks else 0, timeout_s=timeout)
    archive = share(live.path, out)
    if output is Output.JSON:
        whole = {"kept": str(live.path), "archive": str(archive), "summary": summary}
        print(msgspec.json.format(msgspec.json.encode(whole, enc_hook=str), indent=2).decode())
    else:
        for item in summary.missing:
            console.tell(f"{item.instance}/{item.file}: {item.status}: {item.error}")
        console.tell(f"kept (exact, for 14 days): {live.path}")
        print(archive)
    return 0 if summary.is_complete else 3
