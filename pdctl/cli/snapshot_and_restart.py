"""`pdctl snapshot-and-restart`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption
from pdctl.cli.restart import DriftOption, DryRunOption, ForceOption, ReadyOption, ReasonOption, YesOption


def snapshot_and_restart(
    reason: ReasonOption = None,
    yes: YesOption = False,
    force: ForceOption = False,
    accept_drift: DriftOption = False,
    dry_run: DryRunOption = False,
    drain: Annotated[
        float | None,
        typer.Option(
            "--drain",
            min=0,
            help="Seconds for requests in flight, then it is killed; default 5, or 1 where none gets through.",
            show_default=False,
        ),
    ] = None,
    timeout: ReadyOption = 120.0,
    file: FileOption = None,
    name: NameOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Diagnose, keep the evidence, restart what the cause calls for, and prove that service is back.

    What is restarted is the subject of the established cause, and every peer that would not survive it; without
    such a cause every engine, if you confirm. What serves is left alone. The proof is real requests on every
    affected pair, two at once, and through the router. Where only the router's fail, you are asked to restart it too.
    Where requests that wait behind one another are all that is wrong, and the engines survive aborts, they are ended
    first; if requests pass then, nothing is restarted.

    \b
    Examples:
      pdctl snapshot-and-restart
      pdctl snapshot-and-restart --dry-run
      pdctl snapshot-and-restart --yes --reason 'pager 4711'

    \b
    Exit codes: 0 proven, 1 not, 2 wrong usage, 4 fault of pdctl or this machine, 5 refused, 130 interrupted.
    """
    from pdctl.cli.recovering import deployed, run
    from pdctl.evidence.archive import share
    from pdctl.hosts.hosts import Hosts
    from pdctl.recover.gates import Wish
    from pdctl.recover.live import Live
    from pdctl.recover.request import Operations, Request
    from pdctl.render import console
    from pdctl.render import recovery as rendered

    wish = Wish(yes=yes, force=force, reason=reason, is_terminal=sys.stdin.isatty())
    request = Request(
        command="pdctl snapshot-and-restart",
        wish=wish,
        accept_drift=accept_drift,
        dry_run=dry_run,
        drain_s=drain,
        ready_timeout_s=timeout,
    )
    with Hosts() as hosts:
        live = Live(*deployed(file, name), console.tell, hosts)
        operations = Operations(
            say=console.tell, choose=rendered.ask, diagnose=live.diagnose, snapshot=live.complete, share=share
        )
        try:
            return run(request, file, name, output, hosts, operations)
        finally:
            if live.summary is not None and not live.is_complete:
                console.tell(f"what the diagnosis saw is kept for 14 days: {live.path}")
