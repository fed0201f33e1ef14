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
    from pdctl.evidence.model import Evidence


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
            metavar="[DIR|ARCHIVE|URL...]",
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
      pdctl diagnose http://127.0.0.1:30000 http://127.0.0.1:30002
      pdctl diagnose incident/ -o json | jq '.causes[0]'
    """
    from pdctl.diagnose.diagnosis import diagnose as judged
    from pdctl.diagnose.exit_status import exit_status
    from pdctl.diagnose.focus import idle_suppressions
    from pdctl.render import console

    focus = _focus(suspect or [], only or [], suppress or [])
    if targets and not targets[0].startswith(("http://", "https://")):
        evidence, deployment = _of_folder(targets), name or ""
    else:
        evidence, deployment = _of_live(targets or [], file, name, read_only, timeout)
    report = judged(evidence, deployment, focus=focus)
    for line in idle_suppressions(
        focus, report.captured_at, report.suppressed, [one.name for one in evidence.instances]
    ):
        console.tell(f"pdctl: {line}")
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


def _of_folder(targets: list[str]) -> Evidence:
    from pdctl.errors import UsageError
    from pdctl.evidence.load import read_evidence
    from pdctl.render import console

    if len(targets) > 1:
        raise UsageError(f"{len(targets)} targets, but {targets[0]} is no URL", "give one folder or archive, or URLs")
    evidence = read_evidence(Path(targets[0]))
    for problem in evidence.problems:
        console.tell(f"pdctl: {problem.place}: {problem.message}")
    return evidence


def _of_live(
    urls: list[str], file: Path | None, name: str | None, read_only: bool, timeout_s: float
) -> tuple[Evidence, str]:
    from pdctl.deployment.discovery import discover
    from pdctl.deployment.identify import Address
    from pdctl.deployment.running import chosen_or_running
    from pdctl.deployment.state import StateFolder, state_root
    from pdctl.evidence.load import read_evidence
    from pdctl.recover.live import Live
    from pdctl.render import console

    if urls:
        found = discover([Address(url.rstrip("/")) for url in urls], name=name, progress=console.tell)
        for note in found.notes:
            console.tell(note)
        deployment, folder = found.deployment, None
    else:
        running = chosen_or_running(name, file, state_root())
        for line in (*running.taken, *running.untold):
            console.tell(line)
        deployment, folder = running.deployment, running.folder
    live = Live(folder or StateFolder(state_root(), deployment.name), deployment, console.tell)
    live.diagnose(patience_s=timeout_s, may_probe=not read_only)
    path = live.complete()
    console.tell(f"kept for 14 days: {path}")
    return read_evidence(path), deployment.name


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
