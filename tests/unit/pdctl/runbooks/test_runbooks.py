"""Every finding has a runbook that a tired person can follow."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import pdctl
from pdctl.diagnose.catalogue import CATALOGUE, Action, Code
from pdctl.errors import UsageError
from pdctl.runbooks import HEADINGS, findings_called, read_runbook
from tests.command_lines import calls_in, parse

_SOURCE = re.compile(r"(?:issues? \d|PR \d|\.py\b|\bsource\b|\bmeasured\b|\bread (?:in|up to)\b)")
_RESTARTS = (Action.RESTART_PAIR, Action.RESTART_INSTANCE, Action.RESTART_ROUTER)
_PROOFS = ("pdctl probe", "pdctl status", "pdctl metrics")
_LEAVES_ALONE = (Action.SCALE, Action.WAIT, Action.NONE)

each_finding = pytest.mark.parametrize("code", CATALOGUE, ids=lambda code: code.code)


def part(code: Code, heading: str) -> str:
    """Return the text below one heading."""
    return read_runbook(code).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@each_finding
def test_title_and_headings_stand_in_order(code: Code) -> None:
    """The title is the catalogue's; each heading is there once, with text below it."""
    lines = read_runbook(code).splitlines()
    assert lines[0] == f"# {code.code} {code.name}: {code.title}"
    assert [line[3:] for line in lines if line.startswith("## ")] == list(HEADINGS)
    assert all(part(code, heading).strip() for heading in HEADINGS)


def test_there_is_no_runbook_without_a_finding() -> None:
    """A code that was renamed leaves no file behind."""
    folder = Path(pdctl.__file__).parent
    assert sorted(f"runbooks/{path.name}" for path in folder.glob("runbooks/*.md")) == sorted(
        item.runbook for item in CATALOGUE
    )


@each_finding
def test_it_is_short_enough_to_read_at_night(code: Code) -> None:
    """20 to 45 lines of at most 130 characters."""
    lines = read_runbook(code).splitlines()
    assert 20 <= len(lines) <= 45
    assert max(map(len, lines)) <= 130


@each_finding
def test_every_call_of_pdctl_parses(code: Code) -> None:
    """Each names a command and options that exist."""
    calls = list(calls_in(read_runbook(code)))
    assert calls
    for call in calls:
        parse(call)


@pytest.mark.parametrize(
    "call", ["pdctl mend prefill-0", "pdctl restart --mild", "pdctl diagnose --native | head", "pdctl redact"]
)
def test_a_wrong_call_does_not_parse(call: str) -> None:
    """No such command, no such option, a missing argument."""
    with pytest.raises(click.UsageError):
        parse(call)


@each_finding
def test_every_upstream_fact_names_its_source(code: Code) -> None:
    """An issue, a pull request, a file or a measurement; or it says that none is known."""
    text = part(code, "Upstream versions").strip()
    facts = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    if not facts:
        assert text.startswith("None known")
    for fact in facts:
        assert _SOURCE.search(fact), fact


@each_finding
def test_look_alikes_are_findings(code: Code) -> None:
    """At least two others are named, and each code that is named anywhere exists."""
    known = {item.code for item in CATALOGUE}
    assert set(re.findall(r"\bPD\d{4}\b", read_runbook(code))) <= known
    assert len(set(re.findall(r"\bPD\d{4}\b", part(code, "Tell it from"))) - {code.code}) >= 2


@each_finding
def test_the_act_is_the_catalogues_action(code: Code) -> None:
    """Where a restart helps it is there, evidence first; where it harms nobody is told to; the end is looked at."""
    calls = list(calls_in(part(code, "Act")))
    restarts = [index for index, call in enumerate(calls) if call.startswith("pdctl restart")]
    if code.action in _RESTARTS:
        assert "pdctl snapshot" in calls[: restarts[0]]
        assert f"--reason {code.code}" in calls[restarts[0]]
    elif code.action in _LEAVES_ALONE:
        assert not restarts
    assert any(call.startswith(_PROOFS) for call in calls)


@pytest.mark.parametrize(
    ("word", "codes"),
    [
        ("PD0301", ["PD0301"]),
        ("pd0301", ["PD0301"]),
        ("bootstrap-thread-dead", ["PD0301"]),
        ("bootstrap_thread_dead", ["PD0301"]),
        ("OOM", ["PD0702", "PD0703"]),
        ("data_corruption_in_transfer", ["PD0309", "PD0313"]),
    ],
)
def test_a_finding_is_found_by_code_name_and_label(word: str, codes: list[str]) -> None:
    """A label that several share gives them all."""
    assert [item.code for item in findings_called(word)] == codes


@pytest.mark.parametrize(
    ("word", "near"), [("PD0804", "PD0805"), ("bootstrap_tread", "bootstrap_thread_dead"), ("zombi", "zombie")]
)
def test_an_unknown_word_names_the_nearest(word: str, near: str) -> None:
    """Codes were left out and labels are mistyped."""
    with pytest.raises(UsageError) as raised:
        findings_called(word)
    assert near in (raised.value.hint or "")
