"""Score the diagnosis on the corpus, as DIAGNOSIS 7 says: `python -m tests.corpus.score [--half develop|other] [-v]`.

Prints counts with 95 % intervals (Wilson); exits 1 when a harmful answer was given.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pdctl.diagnose.catalogue import CATALOGUE
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.report import Report
from tests.corpus.incidents import CORPUS, SOURCES, Incident, incidents

_VERDICTS = ("healthy", "unknown")
"""Labels that are no causes."""


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """How one report did."""

    name: str
    verdict: str
    first: str
    outcome: str
    """right | wrong | abstained | thin | kept silent | spoke"""
    harm: tuple[str, ...]
    is_abstaining_case: bool


def mark(incident: Incident, report: Report) -> Marks:
    """Hold a report against the truth."""
    truth = incident.truth
    firm = [cause for cause in report.firm if cause.label not in ("no_traffic",)]
    labels = [cause.label for cause in firm]
    first = f"{firm[0].code} {firm[0].label}" if firm else "-"
    if truth.abstain or truth.label == "unknown":
        outcome = "spoke" if any(label not in truth.accepted for label in labels) else "kept silent"
    elif truth.label == "healthy":
        outcome = "right" if report.verdict == "healthy" and not firm else "wrong"
    elif labels:
        outcome = "right" if labels[0] in truth.accepted else "wrong"
    else:
        outcome = "thin" if truth.thin else "abstained"
    return Marks(
        name=incident.name,
        verdict=report.verdict,
        first=first,
        outcome=outcome,
        harm=tuple(_harm(incident, report, labels)),
        is_abstaining_case=truth.abstain or truth.label == "unknown",
    )


def _harm(incident: Incident, report: Report, labels: list[str]) -> Iterable[str]:
    truth = incident.truth
    codes = {item.code for item in CATALOGUE if item.label == truth.label}
    excluded = {row.code for row in report.ruled_out}
    if codes and codes <= excluded:
        yield "truth ruled out"
    if not truth.wedge and report.verdict == "wedged":
        yield "non-wedge called wedged"
    if any(label in truth.never for label in labels):
        yield "never-cause firm"
    if truth.label == "healthy" and (labels or report.verdict not in ("healthy",)):
        yield "false alarm"
    never_actions = set(truth.never_actions) or _actions_of(truth.never, truth.accepted)
    if report.firm and report.firm[0].next:
        advised = {step.action for step in report.firm[0].next if step.action != "none"}
        if advised & never_actions:
            yield f"never-action {', '.join(sorted(advised & never_actions))}"


def _actions_of(never: tuple[str, ...], accepted: frozenset[str]) -> set[str]:
    """Return actions that only wrong labels call for."""
    wrong = {str(item.action) for item in CATALOGUE if item.label in never}
    right = {str(item.action) for item in CATALOGUE if item.label in accepted}
    return wrong - right - {"none", "restart_pair", "restart_instance"}


def wilson(hits: int, total: int) -> str:
    """Return `hits/total  share % [low, high]`."""
    if total == 0:
        return "0/0"
    z, share = 1.96, hits / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return f"{hits}/{total}  {100 * share:.0f} % [{100 * max(0, middle - half):.0f}, {100 * min(1, middle + half):.0f}]"


def table(marks: list[Marks]) -> list[str]:
    """Return the lines of the score table."""
    decidable = [item for item in marks if not item.is_abstaining_case and item.outcome != "thin"]
    silent = [item for item in marks if item.is_abstaining_case]
    counts = Counter(item.outcome for item in decidable)
    harms = Counter(kind.partition(" ")[0] + " " + kind.partition(" ")[2] for item in marks for kind in item.harm)
    lines = [
        f"right cause first      {wilson(sum(item.outcome == 'right' for item in decidable), len(decidable))}",
        f"  wrong cause first    {counts['wrong']}, abstained {counts['abstained']}",
        f"abstains where it must {wilson(sum(item.outcome == 'kept silent' for item in silent), len(silent))}",
    ]
    kinds = ("truth ruled out", "non-wedge called wedged", "never-cause firm", "false alarm")
    lines += [f"{kind:<23}{harms.get(kind, 0)}" for kind in kinds]
    actions = sum(count for kind, count in harms.items() if kind.startswith("never-action"))
    return [*lines, f"{'never-action advised':<23}{actions}"]


def ablation(chosen: list[Incident], full: dict[str, Report], without: str) -> str:
    """Return the line of a score without one kind of source, and how many verdicts flipped."""
    marks, flips = [], []
    for incident in chosen:
        report = diagnose(incident.evidence(without))
        marks.append(_weakened(incident, report) or mark(incident, report))
        if is_flip(full[incident.name], report):
            flips.append(incident.name)
    decidable = [item for item in marks if not item.is_abstaining_case and item.outcome != "thin"]
    right = sum(item.outcome == "right" for item in decidable)
    wrong = sum(item.outcome == "wrong" for item in decidable)
    harm = sum(1 for item in marks if item.harm)
    rest = f"wrong {wrong}, harmful {harm}, flipped {len(flips)} {' '.join(flips[:6])}"
    return f"without {without:<9}      {wilson(right, len(decidable))}, {rest}"


def _weakened(incident: Incident, report: Report) -> Marks | None:
    """Return the marks of a healthy system of which less evidence proves nothing, and that accuses nobody."""
    if incident.truth.label != "healthy" or report.verdict != "unknown" or report.firm:
        return None
    return Marks(
        name=incident.name, verdict=report.verdict, first="-", outcome="abstained", harm=(), is_abstaining_case=False
    )


def is_flip(full: Report, less: Report) -> bool:
    """Return whether a verdict turned into its opposite; `unknown` and weaker words are no flips."""
    good = ("healthy", "not_a_wedge")
    return (full.verdict in good and less.verdict == "wedged") or (full.verdict == "wedged" and less.verdict in good)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("develop", "other", "all"), default="all")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("-v", "--verbose", action="store_true", help="one line a folder")
    arguments = parser.parse_args()
    wanted = {"develop": (True,), "other": (False,), "all": (True, False)}[arguments.half]
    chosen = [item for item in incidents(arguments.corpus) if item.is_develop_half in wanted]
    reports = {item.name: diagnose(item.evidence()) for item in chosen}
    marks = [mark(item, reports[item.name]) for item in chosen]
    for item, row in zip(chosen, marks, strict=True):
        if arguments.verbose or row.outcome in ("wrong", "spoke") or row.harm:
            harm = "; ".join(row.harm)
            print(f"{row.name} {row.outcome:<11} {item.truth.label:<38} {row.verdict:<11} {row.first:<46} {harm}")
    print(f"{len(chosen)} folders ({arguments.half})")
    print("\n".join(table(marks)))
    print("\n".join(ablation(chosen, reports, without) for without in SOURCES))
    return 1 if any(row.harm for row in marks) else 0


if __name__ == "__main__":
    sys.exit(main())
