"""`pdctl diagnose`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.cli.options import FileOption, NameOption

if TYPE_CHECKING:
    from pdctl.diagnose.focus import Focus
    from pdctl.diagnose.report import Report
    from pdctl.recover.live import Live


class ReportForm(StrEnum):
    """Form of the report on stdout."""

    TABLE = "table"
    SHORT = "short"
    JSON = "json"
    MARKDOWN = "md"


class FailOn(StrEnum):
    """Lowest level of a cause that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_WORD = "CODE|LABEL"


def diagnose(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="A kept folder or archive, or URLs of engines; without one, what was used last or runs here.",
            metavar="[DIR|ARCHIVE|[ROLE=]URL...]",
        ),
    ] = None,
    output: Annotated[ReportForm, typer.Option("--output", "-o", help="Form of the report.")] = ReportForm.TABLE,
    fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit 1 from this level on.")] = FailOn.ERROR,
    suspect: Annotated[
        list[str] | None,
        typer.Option("--suspect", help="Say whether it is this finding, and why not. May be repeated.", metavar=_WORD),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Report on this finding alone. May be repeated.", metavar=_WORD)
    ] = None,
    suppress: Annotated[
        list[str] | None,
        typer.Option(
            "--suppress", help="Accept a finding on one instance up to a day.", metavar="CODE=SUBJECT@YYYY-MM-DD"
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Send no request of our own, not even where it would decide.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=4, help="Seconds after which the report comes, whatever hangs.")
    ] = 20.0,
    upstream: Annotated[
        bool,
        typer.Option("--upstream", help="With -o md: a bug report for the engine's authors, without names or content."),
    ] = False,
    file: FileOption = None,
    name: NameOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All observations and the time line too.")] = False,
) -> int:
    """Say what is wrong, what was ruled out and what to do next.

    A live deployment is looked at in two samples; a stall that is suspected is watched until it is certain, and only
    then stacks are read. What was collected stays, so that the same report can be had again. Changes nothing.
    Exit code: 0 well or no wedge, 1 wedged, failing or degraded, 3 cannot tell. --only and --suppress hide causes,
    never that work stands still or fails.

    \b
    Examples:
      pdctl diagnose
      pdctl diagnose -o short
      pdctl diagnose --suspect bootstrap_thread_dead
      pdctl diagnose http://p1:30000 decode=http://d1:30002   # the role of one that hangs
      pdctl diagnose incident/ -o json | jq '.causes[0]'
      pdctl diagnose incident/ -o md --upstream > bug.md
    """
    from pdctl.cli.evidence import kept_at, live_of
    from pdctl.diagnose.diagnosis import diagnose as judged
    from pdctl.diagnose.exit_status import exit_status
    from pdctl.diagnose.focus import idle_suppressions
    from pdctl.diagnose.recurrence import with_earlier
    from pdctl.errors import UsageError
    from pdctl.evidence.kept import earlier_than
    from pdctl.evidence.load import read_shareable
    from pdctl.render import console
    from pdctl.render.report_upstream import as_upstream

    if upstream and output is not ReportForm.MARKDOWN:
        raise UsageError(f"--upstream is a form of -o md, not of -o {output}", "give both: -o md --upstream")
    focus = _focus(suspect or [], only or [], suppress or [])
    if targets and "://" not in targets[0]:
        if len(targets) > 1:
            hint = "give one folder or archive, or URLs"
            raise UsageError(f"{len(targets)} targets, but {targets[0]} is no URL", hint)
        path, deployment = Path(targets[0]), name or ""
    else:
        path, deployment = _collected(live_of(targets or [], file, name), read_only, timeout)
    evidence = kept_at(path)
    report = with_earlier(judged(evidence, deployment, focus=focus), earlier_than(path.absolute()))
    for line in idle_suppressions(
        focus, report.captured_at, report.suppressed, [one.name for one in evidence.instances]
    ):
        console.tell(f"pdctl: {line}")
    if upstream:
        shareable = read_shareable(path)
        print(as_upstream(judged(shareable, focus=focus), shareable), end="")
    else:
        _print(report, output, verbose)
    return exit_status(report, fail_on)


def _focus(suspect: list[str], only: list[str], suppress: list[str]) -> Focus:
    from pdctl.diagnose.focus import Focus, suppression_of
    from pdctl.runbooks import findings_called

    def codes(words: list[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.code for word in words for item in findings_called(word)))

    return Focus(
        suspects=codes(suspect), only=codes(only), suppressions=tuple(suppression_of(text) for text in suppress)
    )


def _collected(live: Live, read_only: bool, timeout_s: float) -> tuple[Path, str]:
    """Look at what runs until the evidence decides; return where it is kept, and the deployment's name."""
    from pdctl.render import console

    live.diagnose(patience_s=timeout_s, may_probe=not read_only)
    path = live.complete()
    console.tell(f"kept for 14 days: {path}")
    return path, live.name


def _print(report: Report, output: ReportForm, verbose: bool) -> None:
    from pdctl.render.report_json import as_json
    from pdctl.render.report_markdown import as_markdown
    from pdctl.render.report_short import as_short
    from pdctl.render.report_table import as_table

    match output:
        case ReportForm.JSON:
            print(as_json(report))
        case ReportForm.SHORT:
            print(as_short(report))
        case ReportForm.MARKDOWN:
            print(as_markdown(report), end="")
        case ReportForm.TABLE:
            print(as_table(report, verbose))
