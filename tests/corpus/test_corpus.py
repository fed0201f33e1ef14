"""The corpus as a test: never harmful, right where it can be, and nothing that must not matter matters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec
import pytest

from pdctl.diagnose.answer import Kind, Truth
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes import ANALYZERS
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.report import Report
from pdctl.evidence.model import Evidence
from tests.corpus import transformations as change
from tests.corpus.incidents import CORPUS, SOURCES, Incident, incidents, load
from tests.corpus.score import is_flip, mark
from tests.corpus.sources import without

pytestmark = pytest.mark.slow

NAMES = sorted(folder.name for folder in CORPUS.iterdir())

DECISIVE = {
    # Folder -> what its deciding lines look like, and the code that must no longer be established without them.
    "i017": (r"different TP sizes|Unexpected transfer worker error", "PD0203"),
    "i034": (r"Exception in thread|IndexError|Transfer thread failed", "PD0302"),
    "i035": (r"engine ID mismatch", "PD0207"),
    "i041": (r"Exception in thread", "PD0303"),
    "i055": (r"Session .* failed", "PD0311"),
    "i063": (r"exceeded kv_transfer_timeout_ms", "PD0905"),
}


@cache
def incident(name: str) -> Incident:
    """Return a folder; read once."""
    return load(CORPUS / name)


@cache
def report(name: str) -> Report:
    """Return its report; made once."""
    return diagnose(incident(name).evidence())


@cache
def ablated(name: str, source: str) -> Report:
    """Return the report without one kind of source; made once."""
    return diagnose(incident(name).evidence(source))


def said(one: Report) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return what a report says in substance."""
    return one.verdict, tuple((cause.code, cause.confidence) for cause in one.firm)


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_is_harmful(name: str) -> None:
    """The truth is not ruled out, no wedge is seen where there is none, no cause that would harm is firm."""
    assert mark(incident(name), report(name)).harm == ()


def test_the_right_cause_comes_first() -> None:
    """In 95 of 100 folders that can be decided."""
    marks = [mark(item, report(item.name)) for item in incidents()]
    decidable = [item for item in marks if not item.is_abstaining_case and item.outcome != "thin"]
    assert sum(item.outcome == "right" for item in decidable) / len(decidable) >= 0.95


_KINDS_OF_HARM = ("truth ruled out", "non-wedge called wedged", "never-cause firm", "never-action advised")


@pytest.mark.parametrize("name", NAMES)
def test_no_missing_file_makes_it_harmful(name: str) -> None:
    """Whichever file could not be collected, the rest does not accuse the innocent."""
    whole = incident(name)
    harms = {}
    for missing in whole.files:
        rest = {file: data for file, data in whole.files.items() if file != missing}
        less = msgspec.structs.replace(whole, files=rest)
        found = mark(less, diagnose(less.evidence())).harm
        if any(harm.startswith(_KINDS_OF_HARM) for harm in found):
            harms[missing] = found
    assert harms == {}


@pytest.mark.parametrize("name", NAMES)
def test_it_abstains_where_nothing_decides(name: str) -> None:
    """Where the evidence allows no firm cause there is none."""
    assert mark(incident(name), report(name)).outcome != "spoke"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", NAMES)
def test_less_evidence_never_flips_the_verdict(name: str, source: str) -> None:
    """Taking a source away may weaken a verdict; it never turns it into its opposite."""
    assert not is_flip(report(name), ablated(name, source))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", NAMES)
def test_less_evidence_names_no_wrong_cause(name: str, source: str) -> None:
    """What it no longer knows it leaves open; it neither names another cause nor advises what would harm."""
    marks = mark(incident(name), ablated(name, source))
    assert marks.outcome not in ("spoke", "wrong") or incident(name).truth.label == "healthy"
    assert [harm for harm in marks.harm if harm != "false alarm"] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "transform",
    [
        change.shifted,
        change.scaled,
        change.with_old_lines,
        change.with_echoes,
        change.with_healthy_instance,
        lambda evidence: change.renamed(evidence)[0],
    ],
    ids=["times shifted", "counts scaled", "old lines", "quoted lines", "a bystander", "renamed"],
)
def test_what_must_not_matter_does_not(name: str, transform: Callable[[Evidence], Evidence]) -> None:
    """The verdict and the firm causes stay the same."""
    assert said(diagnose(transform(incident(name).evidence()))) == said(report(name))


@pytest.mark.parametrize("name", DECISIVE)
def test_without_its_deciding_lines_a_cause_is_not_established(name: str) -> None:
    """The report abstains or falls back to something weaker."""
    pattern, code = DECISIVE[name]
    assert (code, "established") in said(report(name))[1]
    less = diagnose(change.without_lines(incident(name).evidence(), pattern))
    assert (code, "established") not in said(less)[1]


@pytest.mark.parametrize("name", NAMES)
def test_analyzers_look_at_their_declared_inputs_only(name: str) -> None:
    """Without the sources a cause does not declare, each of its predicates answers the same."""
    evidence = incident(name).evidence()
    full = _answers(Case(evidence))
    for kind in set(Kind) - {Kind.TOPOLOGY}:
        less = _answers(Case(without(evidence, kind)))
        undeclared = {analyzer.code for analyzer in ANALYZERS if kind not in analyzer.inputs}
        changed = {key for key, truth in full.items() if key[0] in undeclared and less[key] is not truth}
        assert not changed, f"{changed} look at {kind}, which they do not declare"


def _answers(case: Case) -> dict[tuple[str, str, str], Truth]:
    return {
        (analyzer.code, check.name, view.name): check.ask(case, view).truth
        for analyzer in ANALYZERS
        for view in case.views
        if view.role in analyzer.roles
        for check in analyzer.checks
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_same_evidence_gives_the_same_bytes(name: str) -> None:
    """A report depends on the evidence and on nothing else."""
    again = diagnose(load(CORPUS / name).evidence())
    assert msgspec.json.encode(again) == msgspec.json.encode(report(name))
