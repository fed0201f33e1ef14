"""What the reader asks of a report: causes that are suspected, looked at alone, or known and accepted until a date."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date, datetime

import msgspec

from pdctl.diagnose.catalogue import code_of
from pdctl.diagnose.judgement import Judgement
from pdctl.errors import UsageError


class Suppression(msgspec.Struct, frozen=True):
    """A cause that is known and accepted on one instance, up to and including a day (UTC)."""

    code: str
    subject: str
    until: date

    def holds(self, at: datetime | None) -> bool:
        """Return whether it covers evidence of that time; evidence without a time is covered by none."""
        return at is not None and at.date() <= self.until


class Focus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. What is judged, and the verdict on the symptoms, depend on none of it."""

    suspects: tuple[str, ...] = ()
    """Codes about which the report says in any case whether they are it."""
    only: tuple[str, ...] = ()
    """Codes that the report is about; empty: all."""
    suppressions: tuple[Suppression, ...] = ()

    def shows(self, *codes: str) -> bool:
        """Return whether a row about these codes belongs into the report."""
        return not self.only or any(code in self.only for code in codes)

    def suppressed(self, judgements: Iterable[Judgement], at: datetime | None) -> frozenset[str]:
        """Return the codes that are accepted on every instance they affect: one that is new elsewhere is told."""
        held = {(item.code, item.subject) for item in self.suppressions if item.holds(at)}
        return frozenset(
            item.code.code
            for item in judgements
            if item.affected and all((item.code.code, name) in held for name in item.affected)
        )


def suppression_of(text: str) -> Suppression:
    """Read `CODE=SUBJECT@DATE`. Raises UsageError: what is wrong with it, and a right one."""
    head, _, day = text.rpartition("@")
    code, _, subject = head.partition("=")
    example = "write it like PD0405=decode-0@2026-12-31: code, instance, last day"
    if not code or not subject:
        raise UsageError(f"--suppress {text!r} is not CODE=SUBJECT@DATE", example)
    try:
        return Suppression(code_of(code).code, subject, date.fromisoformat(day))
    except ValueError:
        raise UsageError(f"--suppress {text!r}: {day!r} is no date", example) from None


def idle_suppressions(
    focus: Focus, at: datetime | None, suppressed: Collection[str], instances: Collection[str]
) -> list[str]:
    """Return a line for each suppression that did nothing: it has ended, names nobody, or its cause is not there."""
    lines: list[str] = []
    for item in focus.suppressions:
        name = f"--suppress {item.code}={item.subject}@{item.until}"
        if item.subject not in instances:
            lines.append(f"{name}: there is no instance {item.subject!r}; there are {', '.join(sorted(instances))}")
        elif not item.holds(at):
            lines.append(f"{name}: has ended, the evidence is of {at.date() if at else 'an unknown day'}")
        elif item.code not in suppressed:
            lines.append(f"{name}: nothing to suppress, that cause is not firm there or affects others too")
    return lines
