"""The catalogue of findings, as data."""

from __future__ import annotations

import pytest

from pdctl.diagnose.catalogue import CATALOGUE, Level, code_of, reachable
from pdctl.diagnose.causes import ANALYZERS
from pdctl.errors import UsageError
from tests.corpus.incidents import incidents

_VERDICTS = {"healthy", "unknown", "idle"}


def test_codes_and_names_are_unique() -> None:
    """A code is never used twice."""
    assert len({item.code for item in CATALOGUE}) == len(CATALOGUE)
    assert len({item.name for item in CATALOGUE}) == len(CATALOGUE)


def test_every_code_has_one_analyzer() -> None:
    """What is in the catalogue is looked for, and what is looked for is in the catalogue."""
    assert sorted(analyzer.code for analyzer in ANALYZERS) == sorted(item.code for item in CATALOGUE)


def test_every_label_of_the_corpus_has_a_code() -> None:
    """No folder's truth is a word that pdctl cannot say."""
    known = {item.label for item in CATALOGUE} | _VERDICTS
    wanted = {label for item in incidents() for label in (item.truth.label, *item.truth.also, *item.truth.never)}
    assert wanted <= known


def test_what_follows_exists() -> None:
    """`leads_to` names codes of the catalogue only, and no code leads to itself directly."""
    codes = {item.code for item in CATALOGUE}
    for item in CATALOGUE:
        assert set(item.leads_to) <= codes - {item.code}


def test_causes_that_are_no_wedge_are_at_most_warnings() -> None:
    """09xx never fails a build at the default level."""
    assert all(item.level is not Level.ERROR for item in CATALOGUE if item.code.startswith("PD09"))


def test_reachable_follows_chains() -> None:
    """A dead thread leads to stuck transfers, and those to a failure nobody is told of."""
    assert {"PD0306", "PD0308"} <= reachable("PD0301")
    assert "PD0301" not in reachable("PD0301")


def test_an_unknown_code_is_a_usage_error() -> None:
    """It says where the codes are listed."""
    with pytest.raises(UsageError, match="PD9999"):
        code_of("PD9999")


def test_every_analyzer_can_become_firm() -> None:
    """Each has a proof, or at least two suggestions."""
    for analyzer in ANALYZERS:
        weights = [check.weight for check in analyzer.checks]
        assert "proves" in weights or weights.count("suggests") >= 2, analyzer.code  # type: ignore[comparison-overlap, arg-type]
