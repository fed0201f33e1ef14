"""Every command that a report prints is one that pdctl has."""

from __future__ import annotations

import re

import msgspec
import pytest

from pdctl.diagnose.case import Case
from pdctl.diagnose.catalogue import CATALOGUE, Code
from pdctl.diagnose.causes import ANALYZERS
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.explanation import Undecided
from pdctl.diagnose.judgement import judge
from pdctl.diagnose.next_steps import steps_for
from pdctl.diagnose.rows import undecided_row
from pdctl.render.report_table import as_table
from tests.command_lines import parse
from tests.unit.pdctl.diagnose import incident as make


@pytest.mark.parametrize("code", CATALOGUE, ids=lambda code: code.code)
def test_steps_of_every_finding_parse(code: Code) -> None:
    """Whatever the action: its command, and the one that proves it."""
    case = Case(make.evidence(make.PAIR, **make.stalled_pair()))
    judged = next(item for item in judge(case, ANALYZERS) if item.instance)
    steps = steps_for(case, msgspec.structs.replace(judged, code=code))
    assert steps
    for step in steps:
        parse(step.command)


def test_what_a_report_without_a_cause_names_parses() -> None:
    """It proposes where to look further."""
    lines = as_table(diagnose(make.evidence(make.PAIR)), False).splitlines()
    (ending,) = [line for line in lines if line.startswith("Next")]
    calls = re.findall(r"pdctl [a-z-]+(?: --?[a-z-]+)*", ending)
    assert len(calls) == 2
    for call in calls:
        parse(call)


def test_what_would_decide_between_two_causes_parses() -> None:
    """The separator names a command, too."""
    parse(undecided_row(Undecided(("PD0301", "PD0304"), "a thread is missing", "p")).separate_by.command)
