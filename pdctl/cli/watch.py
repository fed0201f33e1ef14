"""`pdctl watch`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption

if TYPE_CHECKING:
    from pdctl.hosts.hosts import Hosts
    from pdctl.watch.watcher import Show, Watcher

DAEMON_PROBES_EVERY_S = 30.0


def watch(
    interval: Annotated[float, typer.Option("--interval", min=0.5, help="Seconds between two looks.")] = 2.0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Looks; without it, until Ctrl-C.")] = None,
    probe_every: Annotated[
        float | None,
        typer.Option(
            "--probe-every", min=0, help="Seconds between canary requests; 0: none.", show_default="30 with --daemon"
        ),
    ] = None,
    daemon: Annotated[
        bool, typer.Option("--daemon", help="Run for systemd, in the foreground, with metrics for Prometheus.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option("--listen", help="Where --daemon answers /metrics.", show_default="127.0.0.1:9108"),
    ] = None,
    print_alerts: Annotated[
        bool, typer.Option("--print-alerts", help="Print the alert rules for Prometheus, and end.")
    ] = False,
    output: OutputOption = Output.TABLE,
    file: FileOption = None,
    name: NameOption = None,
) -> int:
    """Look again and again: queues, oldest age, progress, transfer rate, failures, and the verdict.

    Sends GETs alone. With --probe-every (or --daemon) a short request goes one way after the other, through the
    router and to each pair; what is suspicious is probed at once. A verdict counts when two looks agree on it.

    --daemon stays in the foreground until SIGTERM, says on stderr when the verdict changes, and answers /metrics.
    The alert rules of --print-alerts rest on these.

    \b
    Examples:
      pdctl watch
      pdctl watch -o json | jq -r '[.at, .verdict] | @tsv'
      pdctl watch --daemon --listen 127.0.0.1:9108
      pdctl watch --print-alerts > /etc/prometheus/pdctl.yml

    \b
    Exit codes: 0 ended by Ctrl-C, SIGTERM or --count, 2 wrong usage, 3 nothing runs here.
    """
    if print_alerts:
        from pdctl.watch.alerts import alert_rules

        print(alert_rules(), end="")
        return 0
    from pdctl.hosts.hosts import Hosts

    _check(daemon, listen, count)
    every_s = probe_every if probe_every is not None else DAEMON_PROBES_EVERY_S if daemon else 0.0
    with Hosts() as hosts:
        watcher, deployment = _watcher(name, file, every_s, hosts)
        if daemon:
            _serve(watcher, deployment, interval, listen, output)
        else:
            _show(watcher, interval, count, output)
    return 0


def _check(daemon: bool, listen: str | None, count: int | None) -> None:
    from pdctl.errors import UsageError

    if listen is not None and not daemon:
        raise UsageError("--listen is for --daemon alone", "add --daemon, or leave --listen out")
    if count is not None and daemon:
        raise UsageError("--daemon runs until SIGTERM, not for a --count", "leave one of them out")


def _watcher(name: str | None, file: Path | None, every_s: float, hosts: Hosts) -> tuple[Watcher, str]:
    from pdctl.deployment.running import chosen_or_running
    from pdctl.deployment.state import StateFolder, state_root
    from pdctl.render import console
    from pdctl.watch.canary import Canary
    from pdctl.watch.watcher import Watcher

    found = chosen_or_running(name, file, state_root())
    for line in (*found.taken, *found.untold):
        console.tell(line)
    deployment = found.deployment
    folder = found.folder or StateFolder(state_root(), deployment.name)
    canary = Canary(deployment, every_s, console.tell) if every_s else None
    return Watcher(deployment, folder, hosts, canary), deployment.name


def _serve(watcher: Watcher, deployment: str, interval_s: float, listen: str | None, output: Output) -> None:
    from pdctl.render import console
    from pdctl.render.watch import as_json_line
    from pdctl.watch.daemon import DEFAULT_LISTEN, serve

    show: Show | None = (lambda sight: print(as_json_line(sight), flush=True)) if output is Output.JSON else None
    serve(watcher, deployment, interval_s, listen or DEFAULT_LISTEN, console.tell, show)


def _show(watcher: Watcher, interval_s: float, count: int | None, output: Output) -> None:
    import asyncio

    from pdctl.watch.watcher import watch as watching

    # Ctrl-C is how one leaves: no failure.
    with contextlib.suppress(KeyboardInterrupt), _screen(output) as show:
        asyncio.run(watching(watcher, interval_s, show, count))
    if watcher.canary is not None:
        watcher.canary.close()


@contextlib.contextmanager
def _screen(output: Output) -> Iterator[Show]:
    from pdctl.render import console
    from pdctl.render.watch import as_json_line, screen

    if output is Output.JSON:
        yield lambda sight: print(as_json_line(sight), flush=True)
        return
    with screen(console.stdout_console()) as show:
        yield show
