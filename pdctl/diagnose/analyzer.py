"""A cause as data: what it needs, what proves it, what speaks for it, and which symptoms it explains."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from pdctl.diagnose.answer import Answer, Kind
from pdctl.diagnose.case import Case
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView


class Weight(StrEnum):
    REQUIRES = "requires"
    """It cannot be this cause without it."""
    PROVES = "proves"
    """Cannot be seen without this cause."""
    SUGGESTS = "suggests"


Ask = Callable[[Case, InstanceView], Answer]


class Check(msgspec.Struct, frozen=True):
    """One predicate."""

    weight: Weight
    name: str
    ask: Ask


def requires(name: str, ask: Ask) -> Check:
    """Make a necessary condition."""
    return Check(Weight.REQUIRES, name, ask)


def proves(name: str, ask: Ask) -> Check:
    """Make a sufficient one."""
    return Check(Weight.PROVES, name, ask)


def suggests(name: str, ask: Ask) -> Check:
    """Make one that speaks for the cause."""
    return Check(Weight.SUGGESTS, name, ask)


class Analyzer(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. Each instance of one of its roles is judged on its own."""

    code: str
    roles: tuple[str, ...]
    inputs: tuple[Kind, ...]
    """Sources its predicates look at; a test takes the others away and demands the same answers."""
    explains: tuple[Symptom, ...]
    checks: tuple[Check, ...]


ENGINES = ("prefill", "decode", "unified", "")
EVERYONE = (*ENGINES, "router")
STALLS = (Symptom.STALLED, Symptom.SUSPECTED, Symptom.PROBE_TIMEOUT)
FAILURES = (Symptom.FAILING, Symptom.FAILURES, Symptom.PROBE_FAILED)
DEATHS = (Symptom.GONE, Symptom.CRASHED, Symptom.REFUSED)
