"""The forms of a report."""

from __future__ import annotations

import json

import pytest

from pdctl.diagnose.catalogue import CATALOGUE
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.focus import Focus
from pdctl.diagnose.report import Report
from pdctl.render.codes_table import as_json as codes_as_json
from pdctl.render.report_json import as_json
from pdctl.render.report_markdown import as_markdown
from pdctl.render.report_short import as_short
from pdctl.render.report_table import as_table
from tests.unit.pdctl.diagnose import incident as make

_FIELDS = {
    "suspicions", "hidden",
    "schema", "tool", "captured_at", "deployment", "verdict", "impact", "incident_id", "seen_before", "changes",
    "probe",
    "clock_skew_ms", "checked", "suppressed", "complete", "affected", "since", "causes", "ruled_out", "undecided",
    "not_checked", "collectors", "timeline",
}  # fmt: skip


def _wedged(focus: Focus | None = None) -> Report:
    stacks = make.stack(
        10,
        "sglang::scheduler",
        "recv_pyobj < recv_requests < event_loop",
        "transfer_worker",
        "transfer_worker",
    )
    files = {**make.stalled_pair(), "p__log_txt": make.abort_burst(), "p__stacks_txt": stacks}
    return diagnose(make.evidence(make.PAIR, **files), focus=focus or Focus())


def _silent() -> Report:
    return make.report(make.PAIR)


@pytest.mark.parametrize("report", [_wedged(), _silent()], ids=["wedged", "nothing known"])
def test_the_first_screen_fits_a_terminal(report: Report) -> None:
    """80 columns by 24 rows, the prompt's row included."""
    lines = as_table(report).splitlines()
    assert len(lines) <= 23
    assert max(len(line) for line in lines) <= 80


_EVERY = tuple(item.code for item in CATALOGUE)


@pytest.mark.parametrize("focus", [Focus(suspects=_EVERY), Focus(suspects=("PD0301", "PD0302"), only=("PD0304",))])
def test_the_first_screen_fits_with_suspicions_too(focus: Focus) -> None:
    """However many were suspected; the command at the end stays."""
    lines = as_table(_wedged(focus)).splitlines()
    assert len(lines) <= 23
    assert max(len(line) for line in lines) <= 80
    assert lines[-1].startswith(("         $ ", "Next ", "Read "))
    assert len(as_short(_wedged(focus)).splitlines()) <= 12


def test_every_form_answers_a_suspicion() -> None:
    """Yes or no stands beside the code, the reason with it."""
    report = _wedged(Focus(suspects=("PD0302",)))
    assert "PD0302 transfer-thread-dead? unlikely" in as_table(report)
    assert "PD0302 transfer-thread-dead: unlikely: every rank of p has 2 transfer workers" in as_short(report)
    assert "`PD0302` transfer-thread-dead: unlikely. every rank of p has 2" in as_markdown(report)
    assert json.loads(as_json(report))["suspicions"][0]["answer"] == "unlikely"


def test_what_is_left_out_is_named_in_every_form() -> None:
    """Nobody takes a filtered report for a whole one."""
    report = _wedged(Focus(only=("PD0304",)))
    for text in (as_table(report), as_short(report), as_markdown(report)):
        assert "PD0301" in text
    assert "none is proven" not in as_table(report)


def test_verdict_cause_and_next_step_are_on_the_screen() -> None:
    """What a person needs at 3 a.m., with real names filled in."""
    text = as_table(_wedged())
    assert "WEDGED" in text
    assert "PD0301" in text
    assert "pdctl restart p d" in text


def test_without_a_cause_the_screen_says_so() -> None:
    """It does not fill the place with a guess."""
    assert "none is proven" in as_table(_silent())


def test_the_short_form_has_at_most_twelve_lines() -> None:
    """For pasting into a chat."""
    assert len(as_short(_wedged()).splitlines()) <= 12


def test_the_json_has_every_field_of_the_format() -> None:
    """One document, nothing renamed."""
    document = json.loads(as_json(_wedged()))
    assert document.keys() >= _FIELDS
    assert document["schema"] == "pdctl.report/1"
    cause = document["causes"][0]
    assert cause["subject"] == {"instance": "p", "role": "prefill", "rank": None, "request": None}
    assert {
        "code",
        "name",
        "label",
        "level",
        "confidence",
        "message",
        "causal_role",
        "observations",
        "next",
        "runbook",
        "fingerprint",
    } <= cause.keys()
    assert {row["weight"] for row in cause["observations"]} <= {"proves", "requires", "suggests", "refutes"}


def test_the_ticket_names_the_evidence() -> None:
    """Each observation stands with the file it was read from."""
    assert "`p/stacks.txt:1`" in as_markdown(_wedged())


def test_codes_carry_what_the_format_asks_for() -> None:
    """`{code, name, label, level, action, runbook, drill}` for every code."""
    rows = json.loads(codes_as_json())
    assert all(row.keys() == {"code", "name", "label", "level", "action", "runbook", "drill"} for row in rows)
    assert rows[0]["runbook"] == "runbooks/PD0101-process-gone.md"


def test_a_fleet_without_a_known_wrong_is_never_stopped() -> None:
    """Where nothing is known wrong a request is advised, and where a queue stands the one instance that has it."""
    healthy = make.report(make.PAIR, probe_toml=make.PROBE_PASSED, d__http_toml=make.HEALTHY_GET)
    assert (healthy.verdict, healthy.firm) == ("healthy", ())
    stalled = diagnose(make.evidence(make.PAIR, **make.stalled_pair()))
    assert (stalled.verdict, stalled.firm) == ("wedged", ())
    for report in (_silent(), healthy):
        assert "Next     pdctl probe" in as_table(report)
        assert "--native" not in as_table(report)
    assert "pdctl stacks --native d [pauses it briefly]" in as_table(stalled)
