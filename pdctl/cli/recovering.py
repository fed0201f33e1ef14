"""What `restart` and `snapshot-and-restart` share: find the deployment, call, render, exit code."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pdctl.cli.options import Output
from pdctl.deployment import state
from pdctl.deployment.model import Deployment
from pdctl.hosts.hosts import Hosts
from pdctl.recover.handover import Interrupted
from pdctl.recover.ledger import Outcome
from pdctl.recover.recovery import recover
from pdctl.recover.request import Operations, Request, Result
from pdctl.recover.router_step import router_command, router_request
from pdctl.render import console
from pdctl.render import recovery as rendered

INTERRUPTED = 130


def run(
    request: Request,
    file: Path | None,
    name: str | None,
    output: Output,
    hosts: Hosts,
    operations: Operations | None = None,
) -> int:
    """Recover, print, and return the exit code. Where only the router still fails, ask a person to restart it too."""
    folder, deployment = deployed(file, name)
    plain = Operations(say=console.tell, choose=rendered.ask)
    try:
        result = recover(folder, deployment, request, operations or plain, hosts)
        _print(result, output)
        if result.outcome is Outcome.ROUTER:
            console.tell(f"next: {router_command(deployment)}")
        next_request = router_request(result, request, deployment) if output is Output.TABLE else None
        if next_request is not None:
            after = recover(folder, deployment, next_request, plain, hosts)
            _print(after, output)
            result = result if after.outcome is Outcome.CANCELLED else after
    except Interrupted as interrupted:
        console.tell(interrupted.message)
        return INTERRUPTED
    return result.exit_code


def _print(result: Result, output: Output) -> None:
    if output is Output.JSON:
        print(rendered.as_json(result))
    else:
        rendered.print_result(result, console.stdout_console())
    if result.was_continued:
        console.tell("an earlier recovery was finished; if you still want yours, call it again")


def deployed(file: Path | None, name: str | None) -> tuple[state.StateFolder, Deployment]:
    """Return the state folder and what is deployed, with the start commands that `up` kept."""
    root = state.state_root()
    wanted = state.chosen(name, file, root)
    folder = state.StateFolder(root, wanted.name)
    kept = folder.load()
    starts = {item.name: item for item in kept.instances} if kept else {}
    merged = tuple(
        msgspec.structs.replace(item, start=starts[item.name].start, env=starts[item.name].env)
        if item.start is None and item.name in starts
        else item
        for item in wanted.instances
    )
    return folder, msgspec.structs.replace(wanted, instances=merged)
