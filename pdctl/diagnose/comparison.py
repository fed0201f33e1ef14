"""Two incidents side by side: what was wrong, why, and what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from pdctl.diagnose.case import Case
from pdctl.diagnose.catalogue import code_of
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.report import Report
from pdctl.diagnose.view import InstanceView
from pdctl.evidence.model import Evidence

_ABSENT = "-"
_FIRM = {"established", "supported"}
"""What neither of them has firm is no difference that anybody looks for."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in both incidents; `-` where one of them does not have it, or does not tell."""

    section: str
    """report | symptoms | causes | code | flags | ages"""
    instance: str
    what: str
    before: str
    after: str
    differs: bool


def compare(before: Evidence, after: Evidence) -> tuple[Difference, ...]:
    """Return everything that either of them has, in the order in which a person asks for it."""
    cases, reports = (Case(before), Case(after)), (diagnose(before), diagnose(after))
    sections = (
        ("report", [_head(report) for report in reports]),
        ("symptoms", [_symptoms(report) for report in reports]),
        ("causes", [_causes(report) for report in reports]),
        ("code", [_of_instances(case, _code) for case in cases]),
        ("flags", [_of_instances(case, _flags) for case in cases]),
        ("ages", [_of_instances(case, _ages) for case in cases]),
    )
    return tuple(row for section, (one, other) in sections for row in _rows(section, one, other))


Facts = Mapping[tuple[str, str], str]
"""(instance, what) -> value; the instance is empty for what is of the whole."""


def _rows(section: str, before: Facts, after: Facts) -> Iterator[Difference]:
    for key in dict.fromkeys((*before, *after)):
        one, other = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if section == "causes" and not {one, other} & _FIRM:
            continue
        yield Difference(section=section, instance=key[0], what=key[1], before=one, after=other, differs=one != other)


def _head(report: Report) -> Facts:
    return {("", "verdict"): report.verdict, ("", "impact"): report.impact.scope}


def _symptoms(report: Report) -> Facts:
    """Return the symptoms without their words: numbers differ from sample to sample."""
    return {(row.instance, f"{row.symptom} {row.unit}".strip()): "yes" for row in report.symptoms}


def _causes(report: Report) -> Facts:
    """Return what stands, what was possible and what was excluded."""
    named = {("", f"{cause.code} {cause.name}"): cause.confidence for cause in report.causes}
    excluded = {("", f"{row.code} {code_of(row.code).name}"): "ruled out" for row in report.ruled_out}
    return {**excluded, **named}


def _of_instances(case: Case, read: Callable[[InstanceView], dict[str, str]]) -> Facts:
    return {(view.name, what): text for view in case.views for what, text in read(view).items()}


def _code(view: InstanceView) -> dict[str, str]:
    source = view.raw.source
    facts = {
        "version": view.version,
        "commit": source.commit if source else None,
        "model": source.model if source else None,
        "page size": source.page_size if source else None,
        "KV type": source.kv_dtype if source else None,
        "transfer": view.transfer,
        "tp": view.raw.tp,
        **{f"fix {name}": held for name, held in (source.fixes if source else {}).items()},
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _flags(view: InstanceView) -> dict[str, str]:
    """Return each flag with its value, and each variable of the environment."""
    source = view.raw.source
    if source is None:
        return {}
    found: dict[str, str] = {}
    name = ""
    for word in source.flags:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            found[name] = value or "given"
        elif name:
            found[name] = word if found[name] == "given" else f"{found[name]} {word}"
    return {**found, **source.env}


def _ages(view: InstanceView) -> dict[str, str]:
    facts: dict[str, str] = {}
    if view.started_at is not None:
        age = view.age_of_process_s
        old = f", {age / 3600:.1f} h old" if age is not None else ""
        facts["started"] = f"{view.started_at:%Y-%m-%d %H:%M:%SZ}{old}"
    if view.processes:
        facts["restarts"] = str(view.restarts())
        facts["processes"] = str(sum(item.state != "gone" for item in view.processes))
    return facts
