"""Answers to predicates: true, false or unknown, with the number and the place."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdctl.evidence.records import Place


class Truth(StrEnum):
    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """Kinds of sources. Two observations of one kind are not independent."""

    METRICS = "metrics"
    LOG = "log"
    STACKS = "stacks"
    PROCESS = "process"
    HTTP = "http"
    GPU = "gpu"
    SOURCE = "source"
    PROBE = "probe"
    TOPOLOGY = "topology"


class Answer(msgspec.Struct, frozen=True):
    """What one predicate found."""

    truth: Truth
    text: str
    kind: Kind | None = None
    place: Place | None = None
    value: float | None = None
    unit: str | None = None

    @property
    def is_true(self) -> bool:
        return self.truth is Truth.TRUE

    @property
    def is_false(self) -> bool:
        return self.truth is Truth.FALSE


def yes(
    text: str, kind: Kind, place: Place | None = None, value: float | None = None, unit: str | None = None
) -> Answer:
    """It is so."""
    return Answer(Truth.TRUE, text, kind, place, value, unit)


def no(
    text: str, kind: Kind, place: Place | None = None, value: float | None = None, unit: str | None = None
) -> Answer:
    """It is not so."""
    return Answer(Truth.FALSE, text, kind, place, value, unit)


def unknown(text: str) -> Answer:
    """Nothing tells; `text` says what is missing."""
    return Answer(Truth.UNKNOWN, text)


def either(*answers: Answer) -> Answer:
    """Return the first true answer, else the first false one, else the first unknown."""
    for truth in (Truth.TRUE, Truth.FALSE):
        for answer in answers:
            if answer.truth is truth:
                return answer
    return answers[0] if answers else unknown("nothing to look at")


def every(*answers: Answer) -> Answer:
    """Return the first false answer, else the first unknown, else the last (all are true)."""
    for truth in (Truth.FALSE, Truth.UNKNOWN):
        for answer in answers:
            if answer.truth is truth:
                return answer
    return answers[-1]
