"""A restart on the screen: what would be done, what was done, before and after."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pdctl.hosts.host import LOCAL
from pdctl.recover.ledger import InstanceState, Outcome, Recovery, Step
from pdctl.recover.proposal import Choice, Proposal
from pdctl.recover.request import Result
from pdctl.render import console as consoles

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = "pdctl.recovery/1"
WORDS = {
    Outcome.RECOVERED: "service is back: every affected pair and the router passed",
    Outcome.NOT_VERIFIED: "the engines run, but requests do not pass",
    Outcome.ROUTER: "direct requests pass, those through the router do not",
    Outcome.NOT_READY: "not every engine came up",
    Outcome.UNKILLABLE: "a process survives SIGKILL; nothing was started beside it, the host must be replaced",
    Outcome.REFUSED: "nothing was done",
    Outcome.CANCELLED: "cancelled before the first signal; nothing was changed",
    Outcome.ABANDONED: "given up before the first signal",
}


def proposal_lines(proposal: Proposal) -> tuple[str, ...]:
    """Return what would be done, what it costs and what else it would deploy."""
    outage = f"about {proposal.predicted_s:.0f} s" if proposal.predicted_s is not None else "no start is on record yet"
    outage += f"; before that at most {proposal.drain_s:g} s for requests in flight"
    lines = [
        f"deployment  {proposal.deployment.name} on {', '.join(_hosts(proposal))}",
        f"restart     {', '.join(proposal.chosen.names)}   ({proposal.decision.why})",
        *(f"            {item.name} joins: {item.because}" for item in proposal.chosen.joined),
        *(
            [f"first       end every request of {', '.join(proposal.abort_first)}; if that helps, nothing is restarted"]
            if proposal.abort_first
            else []
        ),
        f"lost        {'; '.join(proposal.lost())}",
        f"stays       {', '.join(proposal.stays()) or 'nothing'}",
        f"outage      {outage}",
    ]
    lines += [f"would also deploy   {item.instance}: {item.what}" for item in proposal.drift]
    return tuple(lines)


def ask(proposal: Proposal) -> Choice:
    """Ask on the terminal; end of input is no."""
    for line in proposal_lines(proposal):
        consoles.tell(line)
    keys = {"r": Choice.RESTART, "q": Choice.QUIT}
    words = "[r] restart now   [q] quit"
    if proposal.snapshot_s is not None:
        keys["s"] = Choice.SNAPSHOT
        words = f"[s] snapshot and restart (+{proposal.snapshot_s:.0f} s)   {words}"
    while True:
        print(f"{words}: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        choice = keys.get(answer.strip().lower()[:1]) if answer.strip() else None
        if not answer:
            return Choice.QUIT
        if choice is not None:
            return choice if choice is Choice.QUIT or _is_meant(proposal) else Choice.QUIT


def _is_meant(proposal: Proposal) -> bool:
    """Let the deployment's name be typed where other hosts are touched: it is easy to be in the wrong window."""
    hosts = _hosts(proposal)
    if hosts == [LOCAL]:
        return True
    name = proposal.deployment.name
    print(f"this touches {', '.join(hosts)}; type {name!r} to go on: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == name


def _hosts(proposal: Proposal) -> list[str]:
    by_name = {item.name: item for item in proposal.deployment.instances}
    return sorted({by_name[name].host for name in proposal.chosen.names})


def as_json(result: Result) -> str:
    """Return one object."""
    proposal = result.proposal
    shown = {
        "schema": SCHEMA,
        "deployment": result.deployment,
        "recovery": result.recovery,
        "outcome": result.outcome,
        "detail": result.detail,
        "continued": result.was_continued,
        "before": result.before or (proposal.before if proposal else ()),
        "after": result.after,
        "phases": result.phases,
        "verification": result.verification,
        "kept": result.kept,
        "archive": result.archive,
        "plan": _plan(proposal) if proposal else None,
    }
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def _plan(proposal: Proposal) -> dict[str, object]:
    return {
        "ruling": proposal.decision.ruling,
        "why": proposal.decision.why,
        "restart": proposal.chosen.names,
        "joined": proposal.chosen.joined,
        "abort_first": proposal.abort_first,
        "lost": proposal.lost(),
        "stays": proposal.stays(),
        "drift": proposal.drift,
        "drain_s": proposal.drain_s,
        "predicted_s": proposal.predicted_s,
    }


def print_result(result: Result, console: Console) -> None:
    """Print the before/after table, the time of each phase and the outcome."""
    if result.proposal is not None:
        for line in proposal_lines(result.proposal):
            console.print(line, markup=False)
        ruling = result.proposal.decision
        console.print(f"gate        {ruling.ruling}: {ruling.why}; nothing was changed (dry run)", markup=False)
        return
    if result.before and result.after:
        console.print(_before_after(result.before, result.after))
    for phase in result.phases:
        console.print(f"{phase.took_s:8.1f} s  {phase.name}", markup=False)
    if result.phases:
        console.print(f"{sum(phase.took_s for phase in result.phases):8.1f} s  in all", markup=False)
    if result.kept:
        console.print(f"evidence    {result.kept} (exact, deleted after 14 days)", markup=False)
    if result.archive:
        console.print(f"to send     {result.archive} (redacted)", markup=False)
    words = WORDS.get(result.outcome, str(result.outcome)) if result.outcome else ""
    console.print(words + (f": {result.detail}" if result.detail else ""), markup=False)


def _before_after(before: Sequence[InstanceState], after: Sequence[InstanceState]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("instance", "pid", "process", "health", "waiting", "oldest"):
        table.add_column(title, overflow="fold")
    now = {row.name: row for row in after}
    for row in before:
        then = now.get(row.name, row)
        table.add_row(
            row.name,
            _change(row.pid, then.pid),
            _change(row.process, then.process),
            _change(row.health, then.health),
            _change(row.waiting, then.waiting),
            _change(_seconds(row.oldest_s), _seconds(then.oldest_s)),
        )
    return table


def _change(before: object, after: object) -> str:
    was, is_now = ("-" if value is None else str(value) for value in (before, after))
    return was if was == is_now else f"{was} -> {is_now}"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f} s"


def history_json(recoveries: Sequence[Recovery]) -> str:
    """Return every line of the ledger, by recovery."""
    shown = [{"recovery": item.id, "outcome": item.outcome, "entries": item.entries} for item in recoveries]
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def history_lines(recoveries: Sequence[Recovery]) -> tuple[str, ...]:
    """Return some lines for each recovery, newest first."""
    lines: list[str] = []
    for item in reversed(recoveries):
        first, last = item.entries[0], item.entries[-1]
        summary = item.summary
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(first.at))
        state = str(item.outcome) if item.outcome else f"half done, last step: {last.step} {last.instance}".rstrip()
        lines.append(f"{when}  {item.id}  {state}  ({last.at - first.at:.1f} s)  by {first.by}")
        why = "; ".join(filter(None, (summary.cause, summary.reason, summary.verdict)))
        lines.append(f"    {summary.command} {' '.join(summary.targets)}: {why or 'no reason given'}")
        ended = item.last(Step.ENDED)
        if ended and ended.phases:
            lines.append("    " + ", ".join(f"{phase.name} {phase.took_s:.1f} s" for phase in ended.phases))
        if ended and ended.detail:
            lines.append(f"    {ended.detail}")
        after = {row.name: row for row in ended.after} if ended else {}
        lines += [
            f"    {row.name}: {row.process}, {row.health} -> {after[row.name].process}, {after[row.name].health}"
            for row in summary.before
            if row.name in after and row.name in summary.targets
        ]
    return tuple(lines)
