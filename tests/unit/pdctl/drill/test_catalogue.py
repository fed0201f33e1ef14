"""The table of drills agrees with what it speaks of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.failpoints.parts import Failpoint
from engine.failpoints.registry import CATALOGUE as FAILPOINTS
from pdctl.diagnose.catalogue import CATALOGUE as CODES
from pdctl.diagnose.catalogue import Action, code_of
from pdctl.drill import faults, rank_faults
from pdctl.drill.catalogue import DRILLS, Cure, Drill, drill_of
from pdctl.errors import UsageError
from pdctl.load.profile import check


def test_every_code_with_a_drill_has_exactly_that_drill() -> None:
    """`pdctl codes` names a drill where there is one, and nowhere else."""
    assert {item.code: item.drill for item in CODES if item.drill} == {item.code: item.name for item in DRILLS}


def test_faults_switch_failpoints_that_exist() -> None:
    """Every failpoint that a fault names is one of the engine's, and each is used."""
    source = "".join(Path(module.__file__).read_text() for module in (faults, rank_faults))
    named = set(re.findall(r'switch\(stage\.\w+, "([a-z-]+)"', source))
    assert named == {item.name for item in FAILPOINTS}


@pytest.mark.parametrize("point", FAILPOINTS, ids=lambda point: point.name)
def test_a_drill_has_the_ranks_that_its_failpoint_needs(point: Failpoint) -> None:
    """An instance with fewer would not know it."""
    assert drill_of(point.name).ranks == point.least_ranks


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_the_cure_fits_the_action_of_the_code(drill: Drill) -> None:
    """A restart where the code advises one, a correction where it advises that, none where nothing is wrong."""
    if drill.code.startswith("PD09"):
        assert drill.cure is Cure.NONE
    elif code_of(drill.code).action is Action.FIX_CONFIG:
        assert drill.cure is Cure.CONFIG
    else:
        assert drill.cure in (Cure.RESTART, Cure.FORCED)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_each_load_is_one(drill: Drill) -> None:
    """Its values are allowed."""
    check(drill.load)


def test_an_unknown_drill_names_those_there_are() -> None:
    """With the right names in the hint."""
    with pytest.raises(UsageError) as error:
        drill_of("mass-hysteria")
    assert error.value.hint is not None
    assert "mass-abort" in error.value.hint
