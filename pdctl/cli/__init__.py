"""One file per command: parse, call, render, exit code. No logic.

`COMMANDS` lists them all; a command's module is imported when it is called or asked for its help, not before.
"""

from __future__ import annotations

import importlib
import io
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import click
import typer
import typer.core
import typer.main
import typer.models

from pdctl import __version__
from pdctl.errors import PdctlError

COMMANDS = {
    "up": "Start prefill and decode, and prove it with a real request.",
    "down": "Stop what `up` started.",
    "status": "Show each instance: process, age, health, queues.",
    "logs": "Show what the instances print.",
    "attach": "Find out what already runs at some URLs, and write pd.toml.",
    "probe": "Send a real request and time each stage of it.",
    "watch": "Look again and again, and alarm when requests stand still.",
    "diagnose": "Say what is wrong, what was ruled out and what to do next.",
    "codes": "List every finding pdctl knows.",
    "explain": "Print the runbook of a finding.",
    "timeline": "Tell what happened when: starts, last work, failures, ends.",
    "diff": "Hold two incidents against each other.",
    "runbook": "Print a runbook with the names of this deployment.",
    "stacks": "Show where every thread stands, without stopping it.",
    "metrics": "Show the metrics that matter, and what moves.",
    "snapshot": "Keep the evidence, and make an archive to send.",
    "redact": "Make an archive to send of kept evidence.",
    "snapshot-and-restart": "Keep the evidence, bring service back, prove it.",
    "restart": "Restart as planned, and prove that service is back.",
    "load": "Make load as agents do, and check what comes back.",
    "drill": "Cause one of the field's wedges for real, and find it.",
    "history": "List restarts: by whom, why, and what came of it.",
}
"""Name -> help line. `pdctl/cli/NAME.py` has a function NAME, both with `_` for `-`; its docstring is the long help."""

EPILOG = """\b
Examples:
  pdctl up                 start 1 prefill, 1 decode and a router
  pdctl status             is everything well?
  pdctl probe              does a real request get through, and how fast?
  pdctl logs -f decode-0   follow one engine's log
  pdctl down               stop everything

\b
Exit codes: 0 well, 1 not, 2 wrong usage, 3 cannot tell, 4 fault of pdctl, 5 refused for safety, 130 Ctrl-C.
"""

INTERRUPTED = 130


class LazyGroup(typer.core.TyperGroup):
    """The command tree, which imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = cmd_name.replace("-", "_")
        function = getattr(importlib.import_module(f"pdctl.cli.{module}"), module)
        info = typer.models.CommandInfo(name=cmd_name, callback=function, short_help=COMMANDS[cmd_name])
        return typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # typer suggests from `self.commands`, which a lazy group does not fill.
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. There are: {', '.join(COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"pdctl {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Bring prefill/decode deployments up, and prove with real requests that they work."""


def command_tree() -> click.Command:
    """Return the root command; its children load on demand."""
    # Rich help costs 70 ms of CPU at each call; completion comes from static files.
    app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.callback(no_args_is_help=True, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})(_root)
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every failure is one message on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What this terminal's encoding cannot say, in a report or an engine's words, must not cost the rest.
        sys.stdout.reconfigure(errors="replace")
    try:
        outcome = command_tree().main(arguments, prog_name="pdctl", standalone_mode=False)
    except PdctlError as error:
        return _failed(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception:
        # The outermost boundary: what nobody foresaw is a fault of pdctl, exit 4, never "not proven".
        traceback.print_exc()
        return PdctlError.exit_code
    return outcome if isinstance(outcome, int) else 0


def _failed(error: PdctlError) -> int:
    print(f"pdctl: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  -> {error.hint}", file=sys.stderr)
    return error.exit_code
