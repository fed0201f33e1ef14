"""`pdctl restart`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption
from pdctl.managers.shim import STOP_DEADLINE_S

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why; goes into the history.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Against the safety gates; needs --reason.")]
DriftOption = Annotated[
    bool, typer.Option("--accept-drift", help="Also where other flags, code or weights would be deployed.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop there.")]
ReadyOption = Annotated[float, typer.Option("--timeout", min=1, help="Seconds until all must be well again.")]


def restart(
    instances: Annotated[list[str] | None, typer.Argument(help="Which; by default every engine.")] = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
    force: ForceOption = False,
    accept_drift: DriftOption = False,
    dry_run: DryRunOption = False,
    drain: Annotated[
        float, typer.Option("--drain", min=0, help="Seconds for requests in flight, then it is killed.")
    ] = STOP_DEADLINE_S,
    timeout: ReadyOption = 120.0,
    file: FileOption = None,
    name: NameOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Restart engines as planned, and prove by real requests that service is back.

    Engines are stopped together and started prefill first. A peer that would not survive must be named too. It is
    refused where it would stop the last instance that serves. A recovery that an earlier pdctl left half done is
    finished first, and then nothing else is done.

    \b
    Examples:
      pdctl restart decode-1 --reason 'new driver' --yes
      pdctl restart --dry-run --reason 'look first'
      pdctl restart --force --reason 'maintenance' --drain 120

    \b
    Exit codes: 0 proven, 1 not, 2 wrong usage, 4 fault of pdctl or this machine, 5 refused, 130 interrupted.
    """
    from pdctl.cli.recovering import run
    from pdctl.hosts.hosts import Hosts
    from pdctl.recover.gates import Wish
    from pdctl.recover.request import Request

    wish = Wish(is_planned=True, yes=yes, force=force, reason=reason, is_terminal=sys.stdin.isatty())
    request = Request(
        command="pdctl restart",
        wish=wish,
        names=tuple(instances or ()),
        accept_drift=accept_drift,
        dry_run=dry_run,
        drain_s=drain,
        ready_timeout_s=timeout,
    )
    with Hosts() as hosts:
        return run(request, file, name, output, hosts)
